// Heap sort of random numbers, as often as told; prints a checksum.
public class Sorting {
    static void sift(int[] heap, int at, int size) {
        int value = heap[at];
        for (int child = 2 * at + 1; child < size; child = 2 * at + 1) {
            if (child + 1 < size && heap[child + 1] > heap[child]) {
                child++;
            }
            if (heap[child] <= value) {
                break;
            }
            heap[at] = heap[child];
            at = child;
        }
        heap[at] = value;
    }

    public static void main(String[] arguments) {
        int rounds = Integer.parseInt(arguments[0]);
        long sum = 0;
        long seed = 42;
        int[] numbers = new int[1_000_000];
        for (int round = 0; round < rounds; round++) {
            for (int i = 0; i < numbers.length; i++) {
                seed = seed * 6364136223846793005L + 1442695040888963407L;
                numbers[i] = (int) (seed >>> 33);
            }
            for (int i = numbers.length / 2 - 1; i >= 0; i--) {
                sift(numbers, i, numbers.length);
            }
            for (int end = numbers.length - 1; end > 0; end--) {
                int top = numbers[0];
                numbers[0] = numbers[end];
                numbers[end] = top;
                sift(numbers, 0, end);
            }
            for (int i = 1; i < numbers.length; i++) {
                if (numbers[i - 1] > numbers[i]) {
                    throw new IllegalStateException("not sorted");
                }
                sum = sum * 31 + numbers[i];
            }
        }
        System.out.println(sum);
    }
}
