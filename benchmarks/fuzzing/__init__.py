"""A fuzzer of modules: programs that touch sizes are written at random, exported, and held against PyTorch.

program.py   a program: its source, its inputs, and how values for them are made
world.py     a program's names at one choice of sizes, while it is being written
slots.py     the holes in a rule: a tensor, an axis, a size, a condition
rules.py     the grammar: one rule a line
write.py     a program from a seed
draws.py     the sizes and values at which a file is tried
judge.py     what an exporter makes of a program, in one word
shrink.py    the same word from fewer lines
"""
