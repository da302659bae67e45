"""Initial weights and token streams as formulas, so that no binary file is stored.

formula.h is the same in C++; both give the same bits, on every machine. All arithmetic is on unsigned 64-bit integers
until the last line of each function, and the floats are exact in double before their one rounding to float32.

  fnv1a64(s)     64-bit FNV-1a of the UTF-8 bytes of s
  splitmix64(x)  one output of SplitMix64 whose state is x before the increment
  h(s, i)        splitmix64(fnv1a64(s) ^ (i * 0x9E3779B97F4A7C15)), products modulo 2^64
  signed(s, i)   2 * (h >> 40) * 2^-24 - 1, in [-1, 1)

The element with row-major index i of the tensor named s, as it is named in the model file, is
  signed / 16        if s ends in ".bias"
  1 + signed / 8     if it has one dimension (the weight of a norm)
  signed / 8         otherwise

Token i of a stream with vocabulary V: with x = h("tokens", i), x mod 8 = 0 gives (x >> 8) mod V, any token; else
(31 * (i mod 17) + 7 * (i mod 5)) mod V, a sequence of period 85. A model learns the second and not the first.
"""

import numpy

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def fnv1a64(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & MASK
    return value


def splitmix64(x):
    """x: an array of uint64."""
    z = x + numpy.uint64(GOLDEN)
    z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return z ^ (z >> numpy.uint64(31))


def hashes(name, count):
    """h(name, i) for i below count."""
    index = numpy.arange(count, dtype=numpy.uint64) * numpy.uint64(GOLDEN)
    return splitmix64(numpy.uint64(fnv1a64(name)) ^ index)


def weights(name, shape):
    """The initial tensor, float32."""
    count = int(numpy.prod(shape))
    signed = 2.0 * (hashes(name, count) >> numpy.uint64(40)).astype(numpy.float64) * 2.0**-24 - 1.0
    if name.endswith(".bias"):
        values = signed / 16
    elif len(shape) == 1:
        values = 1.0 + signed / 8
    else:
        values = signed / 8
    return values.astype(numpy.float32).reshape(shape)


def tokens(count, vocab_size):
    """The token stream, int64."""
    x = hashes("tokens", count)
    index = numpy.arange(count, dtype=numpy.uint64)
    vocab = numpy.uint64(vocab_size)
    noise = (x >> numpy.uint64(8)) % vocab
    rule = (numpy.uint64(31) * (index % numpy.uint64(17)) + numpy.uint64(7) * (index % numpy.uint64(5))) % vocab
    return numpy.where(x % numpy.uint64(8) == 0, noise, rule).astype(numpy.int64)
