// Records, streams, threads, exceptions, expressions, big numbers, files and a process.
import java.math.BigInteger;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

public class Work {
    record Item(String name, int count) {}

    interface Shape {
        double area();
    }

    record Square(double side) implements Shape {
        public double area() {
            return side * side;
        }
    }

    record Circle(double radius) implements Shape {
        public double area() {
            return Math.PI * radius * radius;
        }
    }

    static int deep(int n) {
        return n == 0 ? 0 : 1 + deep(n - 1);
    }

    static int faults(int rounds) {
        int caught = 0;
        int[] few = new int[4];
        String none = null;
        for (int i = 0; i < rounds; i++) {
            try {
                if (i % 3 == 0) {
                    caught += none.length();
                } else if (i % 3 == 1) {
                    caught += few[i % 9];
                } else {
                    caught += 10 / (i % 2);
                }
            } catch (NullPointerException | ArrayIndexOutOfBoundsException | ArithmeticException e) {
                caught++;
            }
        }
        return caught;
    }

    public static void main(String[] arguments) throws Exception {
        int size = Integer.parseInt(arguments[0]);
        List<String> lines = Files.readAllLines(Path.of("text.txt"));
        Map<String, Long> counted = lines.stream()
                .flatMap(line -> List.of(line.split(" ")).stream())
                .collect(Collectors.groupingBy(word -> word, TreeMap::new, Collectors.counting()));
        counted.entrySet().stream()
                .sorted(Map.Entry.<String, Long>comparingByValue().reversed())
                .limit(5)
                .forEach(System.out::println);
        System.out.println(IntStream.range(0, size).parallel().mapToLong(i -> (long) i * i % 97).sum());
        var pool = Executors.newFixedThreadPool(4);
        List<Future<Integer>> parts = new ArrayList<>();
        for (int worker = 0; worker < 8; worker++) {
            int mine = worker;
            parts.add(pool.submit(() -> {
                Map<Integer, Item> items = new HashMap<>();
                for (int i = 0; i < size / 20; i++) {
                    items.merge(i % 101, new Item("n" + i, mine),
                            (a, b) -> new Item(a.name(), a.count() + b.count()));
                }
                return items.values().stream().mapToInt(Item::count).sum();
            }));
        }
        long total = 0;
        for (var part : parts) {
            total += part.get();
        }
        pool.shutdown();
        System.out.println(total + " " + faults(size / 10) + " " + deep(3000));
        double area = 0;
        for (int i = 0; i < size; i++) {
            Shape shape = i % 2 == 0 ? new Square(i % 10) : new Circle(i % 7);
            area += shape.area();
        }
        System.out.printf("%.4f%n", area);
        System.out.println(BigInteger.TWO.pow(2203).subtract(BigInteger.ONE).isProbablePrime(5));
        var found = Pattern.compile("(\\w+)ka(\\w+)").matcher(String.join(" ", lines));
        int matches = 0;
        while (found.find()) {
            matches += found.group(1).length();
        }
        byte[] digest = MessageDigest.getInstance("SHA-256").digest(Files.readAllBytes(Path.of("text.txt")));
        System.out.println(matches + " " + new BigInteger(1, digest).toString(16));
        var child = new ProcessBuilder("echo", "a child").start();
        System.out.print(new String(child.getInputStream().readAllBytes()));
        System.exit(child.waitFor());
    }
}
