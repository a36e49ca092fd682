"""Loops that are worth compiling."""


def sieve(limit):
    marks = bytearray(limit)
    found = 0
    for n in range(2, limit):
        if not marks[n]:
            found += 1
            for m in range(n * n, limit, n):
                marks[m] = 1
    return found


def queens(size, row=0, columns=0, left=0, right=0):
    if row == size:
        return 1
    found = 0
    free = ~(columns | left | right) & ((1 << size) - 1)
    while free:
        bit = free & -free
        free ^= bit
        found += queens(size, row + 1, columns | bit, (left | bit) << 1, (right | bit) >> 1)
    return found


def floats(rounds):
    x = 0.5
    for n in range(rounds):
        x = x * 3.7 * (1 - x)
        if n % 1000 == 0:
            x = (x + 0.25) % 1
    return x


words = {}
for n in range(300000):
    key = "k%d" % (n * 7919 % 1009)
    words[key] = words.get(key, 0) + n
print(sieve(2000000), queens(9), floats(3000000), len(words), words["k7"])
