// A transform of complex numbers forward and back: both must give the beginning again.
public class FFT {
    static double random(long[] seed) {
        seed[0] = seed[0] * 6364136223846793005L + 1442695040888963407L;
        return (seed[0] >>> 11) * 0x1.0p-53;
    }

    // In place, pairs of real and imaginary parts; the length is a power of two.
    static void transform(double[] data, int direction) {
        int n = data.length / 2;
        for (int i = 0, j = 0; i < n - 1; i++) {
            if (i < j) {
                for (int part = 0; part < 2; part++) {
                    double kept = data[2 * i + part];
                    data[2 * i + part] = data[2 * j + part];
                    data[2 * j + part] = kept;
                }
            }
            int bit = n >> 1;
            while (bit <= j) {
                j -= bit;
                bit >>= 1;
            }
            j += bit;
        }
        for (int half = 1; half < n; half <<= 1) {
            double angle = direction * Math.PI / half;
            double stepReal = Math.cos(angle);
            double stepImaginary = Math.sin(angle);
            double real = 1;
            double imaginary = 0;
            for (int k = 0; k < half; k++) {
                for (int i = k; i < n; i += 2 * half) {
                    int other = i + half;
                    double x = real * data[2 * other] - imaginary * data[2 * other + 1];
                    double y = real * data[2 * other + 1] + imaginary * data[2 * other];
                    data[2 * other] = data[2 * i] - x;
                    data[2 * other + 1] = data[2 * i + 1] - y;
                    data[2 * i] += x;
                    data[2 * i + 1] += y;
                }
                double turned = real * stepReal - imaginary * stepImaginary;
                imaginary = real * stepImaginary + imaginary * stepReal;
                real = turned;
            }
        }
        if (direction < 0) {
            for (int i = 0; i < data.length; i++) {
                data[i] /= n;
            }
        }
    }

    public static void main(String[] arguments) {
        int size = Integer.parseInt(arguments[0]);
        int n = 1 << 18;
        long[] seed = {42};
        double[] begun = new double[2 * n];
        for (int i = 0; i < begun.length; i++) {
            begun[i] = random(seed) - 0.5;
        }
        double[] data = begun.clone();
        long sum = 0;
        for (int round = 0; round < size; round++) {
            transform(data, 1);
            for (int i = 0; i < data.length; i += 997) {
                sum = sum * 31 + Math.round(data[i] * 1e6);
            }
            transform(data, -1);
        }
        double off = 0;
        for (int i = 0; i < data.length; i++) {
            off = Math.max(off, Math.abs(data[i] - begun[i]));
        }
        if (off > 1e-7) {
            throw new IllegalStateException("off by " + off);
        }
        System.out.println("FFT " + Long.toHexString(sum));
    }
}
