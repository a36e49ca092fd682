// Draws 64 spheres that shine and mirror each other, with shadows.
import java.util.ArrayList;
import java.util.List;

public class RayTracer {
    record Vector(double x, double y, double z) {
        Vector plus(double times, Vector o) {
            return new Vector(x + times * o.x, y + times * o.y, z + times * o.z);
        }

        double dot(Vector o) {
            return x * o.x + y * o.y + z * o.z;
        }

        Vector unit() {
            double length = Math.sqrt(dot(this));
            return new Vector(x / length, y / length, z / length);
        }
    }

    interface Thing {
        double hit(Vector from, Vector along);

        Vector outward(Vector at);

        double mirrors();

        double shade(int colour);
    }

    record Sphere(Vector centre, double radius, int number) implements Thing {
        public double hit(Vector from, Vector along) {
            Vector to = centre.plus(-1, from);
            double b = to.dot(along);
            double inside = b * b - to.dot(to) + radius * radius;
            if (inside < 0) {
                return Double.POSITIVE_INFINITY;
            }
            double root = Math.sqrt(inside);
            double near = b - root > 1e-6 ? b - root : b + root;
            return near > 1e-6 ? near : Double.POSITIVE_INFINITY;
        }

        public Vector outward(Vector at) {
            return at.plus(-1, centre).unit();
        }

        public double mirrors() {
            return 0.2 + number % 4 * 0.15;
        }

        public double shade(int colour) {
            return (number * (colour + 3) % 8 + 1) / 8.0;
        }
    }

    static final Vector LIGHT = new Vector(100, 120, -150);
    static final int DEEPEST = 6;

    final List<Thing> things = new ArrayList<>();
    long rays;

    RayTracer() {
        for (int number = 0; number < 64; number++) {
            double x = number % 4 * 10 - 15;
            double y = number / 4 % 4 * 10 - 15;
            double z = number / 16 * 10;
            things.add(new Sphere(new Vector(x, y, z), 4, number));
        }
    }

    Thing first(Vector from, Vector along, double[] distance) {
        rays++;
        Thing found = null;
        for (Thing thing : things) {
            double at = thing.hit(from, along);
            if (at < distance[0]) {
                distance[0] = at;
                found = thing;
            }
        }
        return found;
    }

    void trace(Vector from, Vector along, double share, int depth, double[] colours) {
        double[] distance = {Double.POSITIVE_INFINITY};
        Thing thing = first(from, along, distance);
        if (thing == null) {
            colours[2] += share * Math.max(0, along.y);
            return;
        }
        Vector at = from.plus(distance[0], along);
        Vector outward = thing.outward(at);
        Vector toLight = LIGHT.plus(-1, at);
        double far = Math.sqrt(toLight.dot(toLight));
        toLight = toLight.unit();
        double light = 0.1;
        if (outward.dot(toLight) > 0 && first(at, toLight, new double[] {far}) == null) {
            light += 0.9 * outward.dot(toLight);
        }
        double mirrored = thing.mirrors();
        for (int colour = 0; colour < 3; colour++) {
            colours[colour] += share * (1 - mirrored) * light * thing.shade(colour);
        }
        if (depth < DEEPEST && share * mirrored > 0.005) {
            Vector turned = along.plus(-2 * along.dot(outward), outward);
            trace(at, turned, share * mirrored, depth + 1, colours);
        }
    }

    int pixel(int x, int y, int size) {
        Vector eye = new Vector(5, 8, -60);
        Vector along = new Vector((x - size / 2.0) / size, (size / 2.0 - y) / size - 0.1, 1).unit();
        double[] colours = new double[3];
        trace(eye, along, 1, 0, colours);
        int packed = 0;
        for (double colour : colours) {
            packed = packed << 8 | Math.min(255, (int) (colour * 255));
        }
        return packed;
    }

    public static void main(String[] arguments) {
        int size = Integer.parseInt(arguments[0]);
        RayTracer tracer = new RayTracer();
        int[] picture = new int[size * size];
        long sum = 0;
        for (int i = 0; i < picture.length; i++) {
            picture[i] = tracer.pixel(i % size, i / size, size);
            sum = sum * 31 + picture[i];
        }
        sum = sum * 31 + tracer.rays;
        // A second look, from the end, when all is compiled, must see the same.
        for (int i = picture.length - 1; i >= 0; i -= 97) {
            if (tracer.pixel(i % size, i / size, size) != picture[i]) {
                throw new IllegalStateException("another colour at " + i);
            }
        }
        System.out.println("RayTracer " + Long.toHexString(sum));
    }
}
