// Solves linear equations by taking the matrix apart, with pivots, by columns.
public class LUFact {
    static void add(int from, int to, double times, double[] x, double[] y) {
        for (int i = from; i < to; i++) {
            y[i] += times * x[i];
        }
    }

    static int largest(int from, double[] x) {
        int found = from;
        for (int i = from + 1; i < x.length; i++) {
            if (Math.abs(x[i]) > Math.abs(x[found])) {
                found = i;
            }
        }
        return found;
    }

    static int[] factor(double[][] columns) {
        int n = columns.length;
        int[] pivots = new int[n];
        for (int k = 0; k < n; k++) {
            double[] column = columns[k];
            int pivot = largest(k, column);
            pivots[k] = pivot;
            if (column[pivot] == 0) {
                throw new IllegalStateException("no solution");
            }
            double kept = column[pivot];
            column[pivot] = column[k];
            column[k] = kept;
            for (int i = k + 1; i < n; i++) {
                column[i] /= -kept;
            }
            for (int j = k + 1; j < n; j++) {
                double[] other = columns[j];
                double times = other[pivot];
                other[pivot] = other[k];
                other[k] = times;
                add(k + 1, n, times, column, other);
            }
        }
        return pivots;
    }

    static void solve(double[][] columns, int[] pivots, double[] x) {
        int n = columns.length;
        for (int k = 0; k < n; k++) {
            double times = x[pivots[k]];
            x[pivots[k]] = x[k];
            x[k] = times;
            add(k + 1, n, times, columns[k], x);
        }
        for (int k = n - 1; k >= 0; k--) {
            x[k] /= columns[k][k];
            add(0, k, -x[k], columns[k], x);
        }
    }

    public static void main(String[] arguments) {
        int rounds = Integer.parseInt(arguments[0]);
        int n = 500;
        long seed = 1;
        long sum = 0;
        for (int round = 0; round < rounds; round++) {
            double[][] columns = new double[n][n];
            double[] right = new double[n];
            for (double[] column : columns) {
                for (int i = 0; i < n; i++) {
                    seed = seed * 6364136223846793005L + 1442695040888963407L;
                    column[i] = (seed >>> 11) * 0x1.0p-53 - 0.5;
                    // The solution is to be all ones.
                    right[i] += column[i];
                }
            }
            int[] pivots = factor(columns);
            solve(columns, pivots, right);
            for (double x : right) {
                if (Math.abs(x - 1) > 1e-7) {
                    throw new IllegalStateException("not 1 but " + x);
                }
            }
            for (int pivot : pivots) {
                sum = sum * 31 + pivot;
            }
        }
        System.out.println("LUFact " + Long.toHexString(sum));
    }
}
