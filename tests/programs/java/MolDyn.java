// Molecules of a gas that attract and repel each other in a box without walls.
public class MolDyn {
    static final double DENSITY = 0.83134;
    static final double STEP = 0.002;
    static final double REACH = 3.0;

    final int number;
    final double box;
    final double[] place;
    final double[] speed;
    final double[] force;
    double potential;
    long near;

    MolDyn(int side) {
        number = 4 * side * side * side;
        box = Math.cbrt(number / DENSITY);
        place = new double[3 * number];
        speed = new double[3 * number];
        force = new double[3 * number];
        double cell = box / side;
        double[][] corners = {{0, 0, 0}, {0, 0.5, 0.5}, {0.5, 0, 0.5}, {0.5, 0.5, 0}};
        int at = 0;
        for (double[] corner : corners) {
            for (int i = 0; i < side; i++) {
                for (int j = 0; j < side; j++) {
                    for (int k = 0; k < side; k++) {
                        place[at++] = (i + corner[0]) * cell;
                        place[at++] = (j + corner[1]) * cell;
                        place[at++] = (k + corner[2]) * cell;
                    }
                }
            }
        }
        long seed = 7;
        double[] drift = new double[3];
        for (int i = 0; i < speed.length; i++) {
            seed = seed * 6364136223846793005L + 1442695040888963407L;
            speed[i] = (seed >>> 11) * 0x1.0p-53 - 0.5;
            drift[i % 3] += speed[i] / number;
        }
        for (int i = 0; i < speed.length; i++) {
            speed[i] -= drift[i % 3];
        }
    }

    double nearest(double distance) {
        if (distance > box / 2) {
            return distance - box;
        }
        return distance < -box / 2 ? distance + box : distance;
    }

    void forces() {
        java.util.Arrays.fill(force, 0);
        potential = 0;
        double shift = Math.pow(REACH, -12) - Math.pow(REACH, -6);
        for (int i = 0; i < place.length; i += 3) {
            double fx = 0;
            double fy = 0;
            double fz = 0;
            for (int j = i + 3; j < place.length; j += 3) {
                double x = nearest(place[i] - place[j]);
                double y = nearest(place[i + 1] - place[j + 1]);
                double z = nearest(place[i + 2] - place[j + 2]);
                double square = x * x + y * y + z * z;
                if (square > REACH * REACH) {
                    continue;
                }
                near++;
                double inverse = 1 / square;
                double sixth = inverse * inverse * inverse;
                potential += 4 * (sixth * sixth - sixth - shift);
                double strength = 24 * inverse * sixth * (2 * sixth - 1);
                fx += strength * x;
                fy += strength * y;
                fz += strength * z;
                force[j] -= strength * x;
                force[j + 1] -= strength * y;
                force[j + 2] -= strength * z;
            }
            force[i] += fx;
            force[i + 1] += fy;
            force[i + 2] += fz;
        }
    }

    double energy() {
        double kinetic = 0;
        for (double v : speed) {
            kinetic += v * v / 2;
        }
        return kinetic + potential;
    }

    void step() {
        for (int i = 0; i < place.length; i++) {
            speed[i] += force[i] * STEP / 2;
            place[i] += speed[i] * STEP;
            place[i] -= box * Math.floor(place[i] / box);
        }
        forces();
        for (int i = 0; i < speed.length; i++) {
            speed[i] += force[i] * STEP / 2;
        }
    }

    public static void main(String[] arguments) {
        int steps = Integer.parseInt(arguments[0]);
        MolDyn gas = new MolDyn(8);
        gas.forces();
        double before = gas.energy();
        for (int i = 0; i < steps; i++) {
            gas.step();
        }
        double after = gas.energy();
        if (Math.abs(after - before) > 0.002 * Math.abs(before)) {
            throw new IllegalStateException("energy was " + before + " and is " + after);
        }
        long sum = gas.near;
        for (double x : gas.place) {
            sum = sum * 31 + Math.round(x * 1e6);
        }
        System.out.println("MolDyn " + Long.toHexString(sum));
    }
}
