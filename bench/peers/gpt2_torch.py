"""A training step of GPT-2 124M in PyTorch, from random weights, with AdamW: the peer of bench/step_bench.

Started by compare; reads one command a line ("step") and answers with the seconds it took. Arguments: mode (autocast,
pure or f32), micro-batches, sequences in each.
"""
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

LAYERS, WIDTH, HEADS, LENGTH, VOCABULARY = 12, 768, 12, 1024, 50257


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def attend(self, x, mask):
        b, t, _ = x.shape
        q, k, v = (part.view(b, t, HEADS, -1).transpose(1, 2) for part in self.qkv(x).split(WIDTH, dim=2))
        scores = q @ k.transpose(2, 3) * (WIDTH // HEADS) ** -0.5
        weights = F.softmax(scores.masked_fill(mask, float("-inf")), dim=-1)
        return self.out((weights.to(v.dtype) @ v).transpose(1, 2).reshape(b, t, WIDTH))

    def forward(self, x, mask):
        x = x + self.attend(self.norm1(x), mask)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.register_buffer("mask", torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1))
        for p in self.parameters():
            nn.init.normal_(p, std=0.02)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions(torch.arange(LENGTH))
        for block in self.blocks:
            x = block(x, self.mask)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.float().view(-1, VOCABULARY), targets.view(-1))


def main():
    mode, micro_batches, sequences = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.manual_seed(1)
    torch.set_num_threads(2)
    model = Gpt2()
    if mode == "pure":
        model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids = torch.randint(257, (micro_batches, sequences, LENGTH + 1))

    def step():
        optimizer.zero_grad(set_to_none=True)
        for batch in ids:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=mode == "autocast"):
                loss = model(batch[:, :-1], batch[:, 1:])
            (loss / micro_batches).backward()
        optimizer.step()

    step()  # warms up
    print("ready", torch.__version__, flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        step()
        print(time.perf_counter() - start, flush=True)


main()
