"""Independent reference of training: the four model families and the optimizer, in plain PyTorch operations.

It computes what Hugging Face transformers computes with eager attention and no dropout, with its tensor names and
config keys. Gradients are PyTorch's own. It favours being easy to compare with the published models over speed.

Families (config["model_type"]): llama and mistral (one architecture here), qwen2, qwen3, gpt2.
"""

import math

import formula
import torch
import torch.nn.functional as F


# ---------------------------------------------------------------------------------------------------------- the tensors


def head_dim_of(config):
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def schema(config, prefix):
    """{name: shape} in the order of the model file; `prefix` is that of gpt2 names, "transformer." or ""."""
    return gpt2_schema(config, prefix) if config["model_type"] == "gpt2" else rope_schema(config)


def rope_schema(config):
    family, hidden, inner = config["model_type"], config["hidden_size"], config["intermediate_size"]
    head_dim = head_dim_of(config)
    q_rows, kv_rows = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    attention_bias, mlp_bias = config.get("attention_bias", False), config.get("mlp_bias", False)
    qkv_bias = attention_bias or family == "qwen2"
    tensors = {"model.embed_tokens.weight": [config["vocab_size"], hidden]}
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        for name, rows, columns, bias in (
            ("self_attn.q_proj", q_rows, hidden, qkv_bias),
            ("self_attn.k_proj", kv_rows, hidden, qkv_bias),
            ("self_attn.v_proj", kv_rows, hidden, qkv_bias),
            ("self_attn.o_proj", hidden, q_rows, attention_bias),
            ("mlp.gate_proj", inner, hidden, mlp_bias),
            ("mlp.up_proj", inner, hidden, mlp_bias),
            ("mlp.down_proj", hidden, inner, mlp_bias),
        ):
            tensors[f"{at}{name}.weight"] = [rows, columns]
            if bias:
                tensors[f"{at}{name}.bias"] = [rows]
        if family == "qwen3":
            tensors[at + "self_attn.q_norm.weight"] = [head_dim]
            tensors[at + "self_attn.k_norm.weight"] = [head_dim]
        tensors[at + "input_layernorm.weight"] = [hidden]
        tensors[at + "post_attention_layernorm.weight"] = [hidden]
    tensors["model.norm.weight"] = [hidden]
    if not config["tie_word_embeddings"]:
        tensors["lm_head.weight"] = [config["vocab_size"], hidden]
    return tensors


def gpt2_schema(config, prefix):
    hidden = config["n_embd"]
    inner = config["n_inner"] or 4 * hidden
    tensors = {
        prefix + "wte.weight": [config["vocab_size"], hidden],
        prefix + "wpe.weight": [config["n_positions"], hidden],
    }
    for layer in range(config["n_layer"]):
        at = f"{prefix}h.{layer}."
        for norm in ("ln_1", "ln_2"):
            tensors[f"{at}{norm}.weight"] = [hidden]
            tensors[f"{at}{norm}.bias"] = [hidden]
        # Conv1D keeps its weight as [in, out].
        for name, rows, columns in (
            ("attn.c_attn", hidden, 3 * hidden),
            ("attn.c_proj", hidden, hidden),
            ("mlp.c_fc", hidden, inner),
            ("mlp.c_proj", inner, hidden),
        ):
            tensors[f"{at}{name}.weight"] = [rows, columns]
            tensors[f"{at}{name}.bias"] = [columns]
    tensors[prefix + "ln_f.weight"] = [hidden]
    tensors[prefix + "ln_f.bias"] = [hidden]
    return tensors


# --------------------------------------------------------------------------------------------------------------- forward


def rms_norm(x, weight, eps):
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))


def inverse_frequencies(config, dtype):
    """(head_dim / 2) angular frequencies of the rotary embedding, scaled as the config says: linear, or that of
    Llama 3.1."""
    head_dim = head_dim_of(config)
    frequency = 1.0 / config["rope_theta"] ** (torch.arange(0, head_dim, 2).to(dtype) / head_dim)
    scaling = config.get("rope_scaling")
    if scaling is None:
        return frequency
    if scaling["rope_type"] == "linear":
        return frequency / scaling["factor"]
    assert scaling["rope_type"] == "llama3"
    factor, low, high = scaling["factor"], scaling["low_freq_factor"], scaling["high_freq_factor"]
    wavelength = 2 * math.pi / frequency
    turns = scaling["original_max_position_embeddings"] / wavelength
    smooth = (turns - low) / (high - low)
    between = (1 - smooth) * frequency / factor + smooth * frequency
    # Fewer than `low` turns in the original context: slowed down by factor. More than `high`: as they were.
    return torch.where(turns < low, frequency / factor, torch.where(turns > high, frequency, between))


def rotate(x, angles):
    """x: (B, heads, T, head_dim); angles: (T, head_dim / 2). Element j turns together with element j + head_dim / 2."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def attention(q, k, v):
    """Causal; q: (B, heads, T, d), k and v: (B, kv_heads, T, d); query head h reads key head h // (heads / kv_heads).
    Returns (B, T, heads * d)."""
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    mixed = scores.masked_fill(future, -math.inf).softmax(-1) @ v
    return mixed.transpose(1, 2).flatten(2)


def split_heads(x, head_dim):
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)  # (B, T, heads * d) -> (B, heads, T, d)


def rope_forward(config, w, ids):
    eps, head_dim = config["rms_norm_eps"], head_dim_of(config)

    def linear(x, name):
        return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))

    x = w["model.embed_tokens.weight"][ids]  # (B, T, C)
    positions = torch.arange(ids.shape[1]).to(x.dtype)
    angles = torch.outer(positions, inverse_frequencies(config, x.dtype))
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        h = rms_norm(x, w[at + "input_layernorm.weight"], eps)
        q, k, v = (split_heads(linear(h, f"{at}self_attn.{part}_proj"), head_dim) for part in "qkv")
        if config["model_type"] == "qwen3":
            q = rms_norm(q, w[at + "self_attn.q_norm.weight"], eps)
            k = rms_norm(k, w[at + "self_attn.k_norm.weight"], eps)
        x = x + linear(attention(rotate(q, angles), rotate(k, angles), v), at + "self_attn.o_proj")
        h = rms_norm(x, w[at + "post_attention_layernorm.weight"], eps)
        x = x + linear(F.silu(linear(h, at + "mlp.gate_proj")) * linear(h, at + "mlp.up_proj"), at + "mlp.down_proj")
    x = rms_norm(x, w["model.norm.weight"], eps)
    return F.linear(x, w["model.embed_tokens.weight" if config["tie_word_embeddings"] else "lm_head.weight"])


def gelu_new(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x.pow(3))))


def gpt2_forward(config, w, ids, prefix):
    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], config["layer_norm_epsilon"])

    def conv1d(x, name):
        return x @ w[name + ".weight"] + w[name + ".bias"]

    head_dim = config["n_embd"] // config["n_head"]
    x = w[prefix + "wte.weight"][ids] + w[prefix + "wpe.weight"][: ids.shape[1]]  # (B, T, C)
    for layer in range(config["n_layer"]):
        at = f"{prefix}h.{layer}."
        qkv = conv1d(norm(x, at + "ln_1"), at + "attn.c_attn").chunk(3, dim=-1)
        x = x + conv1d(attention(*(split_heads(part, head_dim) for part in qkv)), at + "attn.c_proj")
        x = x + conv1d(gelu_new(conv1d(norm(x, at + "ln_2"), at + "mlp.c_fc")), at + "mlp.c_proj")
    return F.linear(norm(x, prefix + "ln_f"), w[prefix + "wte.weight"])


def forward(config, w, ids, prefix):
    """ids: (B, T) -> logits (B, T, vocab)."""
    return gpt2_forward(config, w, ids, prefix) if config["model_type"] == "gpt2" else rope_forward(config, w, ids)


# -------------------------------------------------------------------------------------------------------------- training


def loss_sum(case, w, windows):
    """windows: (B, T + 1) tokens; the sum of the cross-entropies of the B * T targets."""
    logits = forward(case["config"], w, windows[:, :-1], case["name_prefix"])
    return F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten(), reduction="sum")


def windows_of(case):
    """(W, T + 1): window w is tokens [w * T, w * T + T + 1); a tail shorter than that is left out."""
    length = case["options"]["max_seq_len"]
    stream = torch.from_numpy(formula.tokens(case["token_count"], case["config"]["vocab_size"]))
    return stream.unfold(0, length + 1, length)


def optimizer_of(options, w):
    groups = [
        {"params": [t for t in w.values() if t.dim() >= 2], "weight_decay": options["weight_decay"]},
        {"params": [t for t in w.values() if t.dim() < 2], "weight_decay": 0.0},
    ]
    betas = (options["adam_beta1"], options["adam_beta2"])
    return torch.optim.AdamW(groups, lr=options["learning_rate"], betas=betas, eps=options["adam_epsilon"])


def train(case, dtype):
    """Runs the case in `dtype`. Returns steps (loss, grad_norm before clipping), the norm of each tensor's gradient in
    the first step, the weights before and after, and the mean loss over all windows after training."""
    options = case["options"]
    shapes = schema(case["config"], case["name_prefix"])
    initial = {name: torch.from_numpy(formula.weights(name, shape)) for name, shape in shapes.items()}
    w = {name: value.to(dtype, copy=True).requires_grad_() for name, value in initial.items()}
    optimizer = optimizer_of(options, w)
    windows = windows_of(case)
    micro, accumulation = options["per_device_train_batch_size"], options["gradient_accumulation_steps"]
    sequences = micro * accumulation
    targets = sequences * options["max_seq_len"]
    steps, first_grad_norms = [], {}
    for step in range(options["max_steps"]):
        optimizer.zero_grad(set_to_none=True)
        batch = windows[[(step * sequences + j) % len(windows) for j in range(sequences)]]
        loss = 0.0
        for part in batch.split(micro):
            part_loss = loss_sum(case, w, part)
            (part_loss / targets).backward()
            loss += part_loss.item()
        # torch's own clipping; with the limit off, an infinite limit gives the same norm and clips nothing.
        norm = torch.nn.utils.clip_grad_norm_(w.values(), options["max_grad_norm"] or math.inf).item()
        if step == 0:
            scale = clip_factor(options, norm)
            first_grad_norms = {name: t.grad.double().norm().item() / scale for name, t in w.items()}
        optimizer.step()
        steps.append({"loss": loss / targets, "grad_norm": norm})
    with torch.no_grad():
        total = sum(loss_sum(case, w, window[None]).item() for window in windows)
    final_loss = total / (len(windows) * options["max_seq_len"])
    return {
        "steps": steps,
        "first_grad_norms": first_grad_norms,
        "initial": initial,
        "final": {name: t.detach() for name, t in w.items()},
        "eval_loss": final_loss,
    }


def clip_factor(options, norm):
    """What clip_grad_norm_ multiplies the gradients with."""
    limit = options["max_grad_norm"]
    return min(1.0, limit / (norm + 1e-6)) if limit else 1.0
