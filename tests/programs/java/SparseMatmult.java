// A vector times a matrix that is nearly empty, kept by rows, again and again.
public class SparseMatmult {
    public static void main(String[] arguments) {
        int rounds = Integer.parseInt(arguments[0]);
        int size = 50_000;
        int filled = 250_000;
        int[] start = new int[size + 1];
        int[] column = new int[filled];
        double[] value = new double[filled];
        double[] vector = new double[size];
        long seed = 3;
        for (int i = 0; i < filled; i++) {
            seed = seed * 6364136223846793005L + 1442695040888963407L;
            column[i] = (int) ((seed >>> 33) % size);
            value[i] = (seed >>> 40) * 0x1.0p-24;
        }
        for (int row = 0; row <= size; row++) {
            start[row] = (int) ((long) row * filled / size);
        }
        for (int i = 0; i < size; i++) {
            vector[i] = (i * 7919L % 1009) / 1009.0;
        }
        double[] result = new double[size];
        for (int round = 0; round < rounds; round++) {
            for (int row = 0; row < size; row++) {
                double sum = result[row];
                for (int i = start[row]; i < start[row + 1]; i++) {
                    sum += vector[column[i]] * value[i];
                }
                result[row] = sum;
            }
        }
        // All rows together are all columns together.
        double byRows = 0;
        double byItems = 0;
        long checksum = 0;
        for (double each : result) {
            byRows += each;
            checksum = checksum * 31 + Math.round(each * 1e6 / rounds);
        }
        for (int i = 0; i < filled; i++) {
            byItems += vector[column[i]] * value[i];
        }
        if (Math.abs(byRows - byItems * rounds) > 1e-6 * byRows) {
            throw new IllegalStateException(byRows + " and " + byItems * rounds);
        }
        System.out.println("SparseMatmult " + Long.toHexString(checksum));
    }
}
