"""What numpy does by vector code and by threads."""

import numpy as np

a = np.arange(160000, dtype=np.float64).reshape(400, 400) % 17 - 8
b = a.T + np.eye(400) * 40
print(f"{(a @ b).sum():.4f} {np.linalg.slogdet(b)[1]:.6f}")
print(f"{np.abs(np.fft.fft2(a)).sum():.2f} {np.sort(a, axis=None)[::40000]}")
x = np.linspace(0, 10, 100001, dtype=np.float32)
print(f"{np.sin(x).sum():.2f} {np.exp(-x).sum():.2f} {np.cumsum(x)[-1]:.0f}")
k = np.arange(1_000_000, dtype=np.int32)
print((k * k ^ k >> 3).sum(), np.bincount(k % 7), (k[k % 3 == 0] * 2).max())
print(f"{np.linalg.norm(np.linalg.inv(b) @ b - np.eye(400)) < 1e-6}")
