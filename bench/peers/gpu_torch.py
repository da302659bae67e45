"""Training steps of GPT-2 124M or a llama of 1.1 or 7 billion parameters in PyTorch on a GPU, from random weights: bf16
weights and activations, fp32 masters and moments (a copy of the weights that AdamW updates), clipping, fused AdamW,
F.scaled_dot_product_attention. The peer of scripts/gpu-check.
Usage: gpu_torch.py gpt2-124m|tinyllama-1.1b|llama-7b SEQUENCES plain|compile [MICRO_BATCHES=1]
"""
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

LENGTH = 1024
SHAPES = {  # layers, width, heads, key/value heads, inner width, vocabulary
    "gpt2-124m": (12, 768, 12, 12, 3072, 50257),
    "tinyllama-1.1b": (22, 2048, 32, 4, 5632, 32000),
    "llama-7b": (32, 4096, 32, 32, 11008, 32000),
}


class Gpt2Block(nn.Module):
    def __init__(self, width, heads, _, inner):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x, _):
        b, t, c = x.shape
        q, k, v = (p.view(b, t, self.heads, -1).transpose(1, 2) for p in self.qkv(self.norm1(x)).split(c, dim=2))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(o.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


def turned(x, rotation):
    cosine, sine = rotation
    a, b = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-b, a), dim=-1) * sine


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, kv_heads, inner):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, kv_heads * self.size, bias=False)
        self.v = nn.Linear(width, kv_heads * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x, rotation):
        b, t, c = x.shape
        n = self.norm1(x)
        q = turned(self.q(n).view(b, t, self.heads, self.size).transpose(1, 2), rotation)
        k = turned(self.k(n).view(b, t, self.kv_heads, self.size).transpose(1, 2), rotation)
        v = self.v(n).view(b, t, self.kv_heads, self.size).transpose(1, 2)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(o.transpose(1, 2).reshape(b, t, c))
        n = self.norm2(x)
        return x + self.down(F.silu(self.gate(n)) * self.up(n))


class Model(nn.Module):
    def __init__(self, name):
        super().__init__()
        layers, width, heads, kv_heads, inner, vocabulary = SHAPES[name]
        self.llama = name != "gpt2-124m"
        block = LlamaBlock if self.llama else Gpt2Block
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = None if self.llama else nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(block(width, heads, kv_heads, inner) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-5) if self.llama else nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        if not self.llama:
            self.head.weight = self.tokens.weight
        size = width // heads
        angles = torch.arange(LENGTH)[:, None] * 10000.0 ** (-torch.arange(0, size, 2) / size)
        angles = torch.cat((angles, angles), dim=-1)
        self.register_buffer("cosine", angles.cos().bfloat16())
        self.register_buffer("sine", angles.sin().bfloat16())
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, targets):
        x = self.tokens(ids)
        if self.positions is not None:
            x = x + self.positions.weight
        for block in self.blocks:
            x = block(x, (self.cosine, self.sine))
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.reshape(-1))


def main():
    name, sequences, mode = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    micro_batches = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    with torch.device("cuda"):
        model = Model(name).bfloat16()
    weights = list(model.parameters())
    masters = [w.detach().float() for w in weights]
    optimizer = torch.optim.AdamW(masters, lr=1e-4, fused=True)
    step = torch.compile(model) if mode == "compile" else model
    vocabulary = SHAPES[name][5]
    times = []
    for i in range(14):
        tokens = torch.randint(vocabulary, (micro_batches, sequences, LENGTH + 1), device="cuda")
        torch.cuda.synchronize()
        start = time.perf_counter()
        for batch in tokens:
            loss = step(batch[:, :-1], batch[:, 1:])
            (loss / micro_batches).backward()
        for master, weight in zip(masters, weights):
            master.grad, weight.grad = weight.grad.float(), None
        nn.utils.clip_grad_norm_(masters, 1.0)
        optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(weights, masters)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    seconds = statistics.median(times[5:])
    print(f"=> {micro_batches * sequences * LENGTH / seconds:.0f} tokens/s, {seconds:.3f} s a step, loss {loss.item():.4f} "
          f"(torch {torch.__version__}, {mode})")


if __name__ == "__main__":
    main()
