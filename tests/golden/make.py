"""Writes cases.json with the reference (README.md describes it), or with --check compares it with a new run."""

import json
import math
import pathlib
import sys

import formula
import torch
from cases import CASES
from reference import clip_factor, train

PATH = pathlib.Path(__file__).with_name("cases.json")
SAMPLES = 4
# A sample is taken where float32 and float64 agree: elsewhere the gradient is only rounding noise, as for the key
# biases of gpt2, to which softmax is blind, and AdamW makes full steps of noise.
SAMPLE_AGREEMENT = 1e-6


def samples_of(name, single, double):
    """Up to SAMPLES elements at indices given by a hash of the name."""
    before, after, exact = single["initial"][name], single["final"][name], double["final"][name]
    chosen = {}
    for h in formula.hashes("sample:" + name, 64):
        i = int(h) % after.numel()
        agrees = abs(after.flatten()[i].item() - exact.flatten()[i].item()) <= SAMPLE_AGREEMENT
        if len(chosen) < SAMPLES and i not in chosen and agrees:
            chosen[i] = [i, before.flatten()[i].item(), after.flatten()[i].item()]
    return list(chosen.values())


def abs_sum(tensor):
    return tensor.double().abs().sum().item()


def tensor_rows(single, double):
    for name, before in single["initial"].items():
        yield {
            "name": name,
            "shape": list(before.shape),
            "initial_abs_sum": abs_sum(before),
            "first_grad_norm": single["first_grad_norms"][name],
            "final_abs_sum": abs_sum(single["final"][name]),
            "final_abs_sum_float64": abs_sum(double["final"][name]),
            "samples": samples_of(name, single, double),
        }


def golden(case):
    single, double = train(case, torch.float32), train(case, torch.float64)
    steps = []
    for step, exact in zip(single["steps"], double["steps"]):
        clipped = clip_factor(case["options"], step["grad_norm"]) < 1.0
        more = {"loss_float64": exact["loss"], "grad_norm_float64": exact["grad_norm"], "clipped": clipped}
        steps.append(step | more)
    rest = {
        "steps": steps,
        "eval_loss": single["eval_loss"],
        "eval_loss_float64": double["eval_loss"],
        "tensors": list(tensor_rows(single, double)),
    }
    return case | rest


def verify_agreement(case):
    """The reference itself has to be well inside the tolerances it is used with."""
    for step in case["steps"]:
        assert math.isclose(step["loss"], step["loss_float64"], rel_tol=1e-5), (case["name"], step)
        assert math.isclose(step["grad_norm"], step["grad_norm_float64"], rel_tol=1e-4), (case["name"], step)


def text_of(cases):
    """JSON with one step, tensor or simple key a line."""
    blocks = []
    for case in cases:
        lines = []
        for key, value in case.items():
            if key in ("steps", "tensors"):
                rows = ",\n".join("    " + json.dumps(row) for row in value)
                lines.append(f'   "{key}": [\n{rows}\n   ]')
            else:
                lines.append(f'   "{key}": {json.dumps(value)}')
        blocks.append("  {\n" + ",\n".join(lines) + "\n  }")
    return '{\n "format": 1,\n "cases": [\n' + ",\n".join(blocks) + "\n ]\n}\n"


def differences(stored, made, where=""):
    """Paths at which two JSON values differ; floats as closely as two machines can be expected to agree."""
    if isinstance(stored, dict) and isinstance(made, dict) and stored.keys() == made.keys():
        return [d for key in stored for d in differences(stored[key], made[key], f"{where}.{key}")]
    if isinstance(stored, list) and isinstance(made, list) and len(stored) == len(made):
        return [d for i, (a, b) in enumerate(zip(stored, made)) for d in differences(a, b, f"{where}[{i}]")]
    if isinstance(stored, float) and isinstance(made, float):
        same = math.isclose(stored, made, rel_tol=2e-5, abs_tol=1e-6)
    else:
        same = stored == made
    return [] if same else [f"{where}: {stored!r} is stored, {made!r} was computed"]


def main():
    torch.set_num_threads(1)
    cases = [golden(case) for case in CASES]
    for case in cases:
        verify_agreement(case)
    if sys.argv[1:] == ["--check"]:
        found = differences(json.loads(PATH.read_text())["cases"], cases)
        print("\n".join(found) or f"{PATH.name} agrees")
        return 1 if found else 0
    assert not sys.argv[1:], "the only argument is --check"
    PATH.write_text(text_of(cases))
    return 0


if __name__ == "__main__":
    sys.exit(main())
