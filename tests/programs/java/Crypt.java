// Enciphers bytes by IDEA and deciphers them again.
public class Crypt {
    static int multiply(int a, int b) {
        if (a == 0) {
            return 0x10001 - b & 0xFFFF;
        }
        if (b == 0) {
            return 0x10001 - a & 0xFFFF;
        }
        long product = (long) a * b;
        int low = (int) (product & 0xFFFF);
        int high = (int) (product >>> 16);
        return low - high + (low < high ? 0x10001 : 0) & 0xFFFF;
    }

    static int inverse(int x) {
        if (x <= 1) {
            return x;
        }
        int t0 = 1;
        int t1 = 0x10001 / x;
        int y = 0x10001 % x;
        while (y != 1) {
            int q = x / y;
            x %= y;
            t0 += q * t1;
            if (x == 1) {
                return t0 & 0xFFFF;
            }
            q = y / x;
            y %= x;
            t1 += q * t0;
        }
        return 1 - t1 & 0xFFFF;
    }

    // The key is turned by 25 bits for each eight words.
    static int[] enciphering(int[] key) {
        int[] keys = new int[52];
        System.arraycopy(key, 0, keys, 0, 8);
        for (int i = 8; i < 52; i++) {
            int row = i / 8 * 8;
            int one = keys[row - 8 + (i + 1) % 8];
            int two = keys[row - 8 + (i + 2) % 8];
            keys[i] = (one << 9 | two >>> 7) & 0xFFFF;
        }
        return keys;
    }

    static int[] deciphering(int[] keys) {
        int[] turned = new int[52];
        for (int round = 0; round <= 8; round++) {
            int from = 48 - 6 * round;
            int to = 6 * round;
            boolean outer = round == 0 || round == 8;
            turned[to] = inverse(keys[from]);
            turned[to + 1] = -keys[outer ? from + 1 : from + 2] & 0xFFFF;
            turned[to + 2] = -keys[outer ? from + 2 : from + 1] & 0xFFFF;
            turned[to + 3] = inverse(keys[from + 3]);
            if (round < 8) {
                turned[to + 4] = keys[from - 2];
                turned[to + 5] = keys[from - 1];
            }
        }
        return turned;
    }

    static int word(byte[] text, int at) {
        return (text[at] & 0xFF) << 8 | text[at + 1] & 0xFF;
    }

    static void put(byte[] text, int at, int word) {
        text[at] = (byte) (word >>> 8);
        text[at + 1] = (byte) word;
    }

    static void cipher(byte[] from, byte[] to, int[] keys) {
        for (int at = 0; at < from.length; at += 8) {
            int a = word(from, at);
            int b = word(from, at + 2);
            int c = word(from, at + 4);
            int d = word(from, at + 6);
            int k = 0;
            for (int round = 0; round < 8; round++) {
                a = multiply(a, keys[k++]);
                b = b + keys[k++] & 0xFFFF;
                c = c + keys[k++] & 0xFFFF;
                d = multiply(d, keys[k++]);
                int e = multiply(a ^ c, keys[k++]);
                int f = multiply((b ^ d) + e & 0xFFFF, keys[k++]);
                e = e + f & 0xFFFF;
                a ^= f;
                d ^= e;
                int kept = b ^ e;
                b = c ^ f;
                c = kept;
            }
            put(to, at, multiply(a, keys[k++]));
            put(to, at + 2, c + keys[k++] & 0xFFFF);
            put(to, at + 4, b + keys[k++] & 0xFFFF);
            put(to, at + 6, multiply(d, keys[k]));
        }
    }

    static void check(boolean good, String what) {
        if (!good) {
            throw new IllegalStateException(what);
        }
    }

    public static void main(String[] arguments) {
        int size = Integer.parseInt(arguments[0]) * 1_000_000;
        int[] keys = enciphering(new int[] {1, 2, 3, 4, 5, 6, 7, 8});
        byte[] known = new byte[8];
        cipher(new byte[] {0, 0, 0, 1, 0, 2, 0, 3}, known, keys);
        check(word(known, 0) == 0x11FB && word(known, 6) == 0x6DE5, "the known text is wrong");
        byte[] plain = new byte[size];
        for (int i = 0; i < size; i++) {
            plain[i] = (byte) (i * 31 ^ i >>> 7);
        }
        byte[] secret = new byte[size];
        byte[] again = new byte[size];
        cipher(plain, secret, keys);
        cipher(secret, again, deciphering(keys));
        check(java.util.Arrays.equals(plain, again), "deciphered wrongly");
        long sum = 0;
        for (byte each : secret) {
            sum = sum * 31 + each;
        }
        System.out.println("Crypt " + Long.toHexString(sum));
    }
}
