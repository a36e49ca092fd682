// Looks ahead in a game of four in a row, on bits, and remembers positions that it has seen.
public class Search {
    static final int WIDTH = 7;
    static final int HEIGHT = 6;
    static final int COLUMN = HEIGHT + 1;
    static final int[] ORDER = {3, 2, 4, 1, 5, 0, 6};
    static final int BITS = 20;

    final long[] seen = new long[1 << BITS];
    final byte[] values = new byte[1 << BITS];
    final boolean remembers;
    long nodes;

    Search(boolean remembers) {
        this.remembers = remembers;
    }

    static boolean won(long stones) {
        for (int step : new int[] {1, COLUMN, COLUMN - 1, COLUMN + 1}) {
            long pairs = stones & stones >>> step;
            if ((pairs & pairs >>> 2 * step) != 0) {
                return true;
            }
        }
        return false;
    }

    static boolean isFree(long all, int column) {
        return (all >>> column * COLUMN + HEIGHT - 1 & 1) == 0;
    }

    // What the one to move can reach at best: above 0 he wins, the sooner the more.
    int best(long mine, long all, int depth, int low, int high) {
        nodes++;
        long yours = mine ^ all;
        for (int column = 0; column < WIDTH; column++) {
            if (isFree(all, column)) {
                long stone = (all + (1L << column * COLUMN)) & ~all & 0x7FL << column * COLUMN;
                if (won(mine | stone)) {
                    return depth + 1;
                }
            }
        }
        if (depth == 0) {
            return 0;
        }
        long key = (mine * 0x9E3779B97F4A7C15L ^ all * 0xC2B2AE3D27D4EB4FL) & ~0xFFL | depth;
        int slot = (int) (key >>> 64 - BITS);
        if (remembers && seen[slot] == key) {
            return values[slot];
        }
        int begun = low;
        int found = -100;
        for (int column : ORDER) {
            if (!isFree(all, column)) {
                continue;
            }
            long next = all | all + (1L << column * COLUMN);
            found = Math.max(found, -best(yours, next, depth - 1, -high, -low));
            low = Math.max(low, found);
            if (low >= high) {
                break;
            }
        }
        if (found == -100) {
            found = 0;
        }
        // Only what is exact may be remembered.
        if (remembers && found > begun && found < high) {
            seen[slot] = key;
            values[slot] = (byte) found;
        }
        return found;
    }

    static int plain(long mine, long all, int depth) {
        long yours = mine ^ all;
        int found = -100;
        for (int column = 0; column < WIDTH; column++) {
            if (isFree(all, column)) {
                long next = all | all + (1L << column * COLUMN);
                if (won(mine | next ^ all)) {
                    return depth + 1;
                }
            }
        }
        for (int column = 0; depth > 0 && column < WIDTH; column++) {
            if (isFree(all, column)) {
                long next = all | all + (1L << column * COLUMN);
                found = Math.max(found, -plain(yours, next, depth - 1));
            }
        }
        return found == -100 ? 0 : found;
    }

    // A game that was begun: who moves next, and all stones.
    static long[] begun(int number) {
        long mine = 0;
        long all = 0;
        for (int move = 0; move < 8; move++) {
            int column = (number * 3 + move * (number % 5 + 2)) % WIDTH;
            if (!isFree(all, column)) {
                continue;
            }
            long next = all | all + (1L << column * COLUMN);
            if (won(mine | next ^ all)) {
                continue;
            }
            mine ^= all;
            all = next;
        }
        return new long[] {mine, all};
    }

    public static void main(String[] arguments) {
        int games = Integer.parseInt(arguments[0]);
        for (int number = 0; number < 6; number++) {
            long[] game = begun(number);
            int expected = plain(game[0], game[1], 5);
            int found = new Search(true).best(game[0], game[1], 5, -100, 100);
            if (found != expected) {
                throw new IllegalStateException("game " + number + " is worth " + expected + " not " + found);
            }
        }
        long sum = 0;
        for (int number = 0; number < games; number++) {
            long[] game = begun(number);
            Search search = new Search(true);
            int value = search.best(game[0], game[1], 13, -100, 100);
            sum = (sum * 31 + value) * 31 + search.nodes;
        }
        System.out.println("Search " + Long.toHexString(sum));
    }
}
