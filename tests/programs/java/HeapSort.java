// Sorts whole numbers by a heap.
public class HeapSort {
    static void sift(int[] heap, int at, int last) {
        while (2 * at <= last) {
            int child = 2 * at;
            if (child < last && heap[child] < heap[child + 1]) {
                child++;
            }
            if (heap[at] >= heap[child]) {
                return;
            }
            int kept = heap[child];
            heap[child] = heap[at];
            heap[at] = kept;
            at = child;
        }
    }

    static void sort(int[] numbers) {
        int last = numbers.length - 1;
        for (int i = last / 2; i >= 0; i--) {
            sift(numbers, i, last);
        }
        for (int i = last; i > 0; i--) {
            int kept = numbers[0];
            numbers[0] = numbers[i];
            numbers[i] = kept;
            sift(numbers, 0, i - 1);
        }
    }

    public static void main(String[] arguments) {
        int rounds = Integer.parseInt(arguments[0]);
        long seed = 11;
        long sum = 0;
        for (int round = 0; round < rounds; round++) {
            int[] numbers = new int[1_000_000];
            long before = 0;
            for (int i = 0; i < numbers.length; i++) {
                seed = seed * 6364136223846793005L + 1442695040888963407L;
                numbers[i] = (int) (seed >>> 32);
                before += numbers[i];
            }
            sort(numbers);
            long after = numbers[0];
            for (int i = 1; i < numbers.length; i++) {
                if (numbers[i - 1] > numbers[i]) {
                    throw new IllegalStateException("not in order at " + i);
                }
                after += numbers[i];
                sum = sum * 31 + numbers[i];
            }
            if (before != after) {
                throw new IllegalStateException("other numbers");
            }
        }
        System.out.println("HeapSort " + Long.toHexString(sum));
    }
}
