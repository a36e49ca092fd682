import java.util.concurrent.Executors;

/** Draws tiles of a map, with a pool of fourteen threads. */
final class Tiles {
    static double draw(int tile) {
        double sum = tile;
        for (int i = 1; i < 200_000; i++) {
            sum += Math.sqrt(sum + i) / i;
        }
        return sum;
    }

    public static void main(String[] arguments) throws Exception {
        var operations = new Operations(arguments[0]);
        var pool = Executors.newFixedThreadPool(14);
        for (int thread = 0; thread < 14; thread++) {
            int first = thread;
            pool.submit(() -> {
                double sum = 0;
                for (int tile = first; sum >= 0; tile += 14) {
                    sum += draw(tile);
                    operations.count();
                }
                return sum;
            });
        }
    }
}
