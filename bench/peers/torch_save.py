"""torch.save of GPT-2 124M and its AdamW state: the peer of bench/checkpoint_bench. Training is blocked while it runs.

Usage: torch_save.py DIR [ROUNDS]. Prints seconds blocked (torch.save returns) and seconds until durable (fsync), and the
bytes written. Beside it, the write bandwidth of the disk:
  fio --name=write --directory=DIR --rw=write --bs=4M --size=2G --direct=1 --ioengine=io_uring --iodepth=16 --end_fsync=1
"""
import os
import sys
import time

import torch

LAYERS, WIDTH, LENGTH, VOCABULARY = 12, 768, 1024, 50257


def parameters():
    shapes = [(VOCABULARY, WIDTH), (LENGTH, WIDTH), (WIDTH,), (WIDTH,)]
    for _ in range(LAYERS):
        shapes += [(3 * WIDTH, WIDTH), (3 * WIDTH,), (WIDTH, WIDTH), (WIDTH,), (4 * WIDTH, WIDTH), (4 * WIDTH,),
                   (WIDTH, 4 * WIDTH), (WIDTH,)] + 4 * [(WIDTH,)]
    return [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]


def main():
    folder, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5
    model = parameters()
    optimizer = torch.optim.AdamW(model)
    for parameter in model:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    path = os.path.join(folder, "torch_save.pt")
    for _ in range(rounds):
        begin = time.monotonic()
        torch.save({"model": model, "optimizer": optimizer.state_dict()}, path)
        blocked = time.monotonic() - begin
        with open(path, "rb") as file:
            os.fsync(file.fileno())
        print(f"blocked {blocked:.3f} s, durable {time.monotonic() - begin:.3f} s, {os.path.getsize(path)} bytes")
        os.remove(path)


if __name__ == "__main__":
    main()
