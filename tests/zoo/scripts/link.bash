# Links one object in four ways, as gcc would tell the linker to.
set -eu
run() {  # OUTPUT COMPILER-OPTIONS...: what the compiler would run, with ld itself
    local out=$1
    shift
    gcc "$@" -o "$out" work.o
}
run plain
run static -static -no-pie
run gold -fuse-ld=gold
run lean -Wl,--gc-sections,-O2,--sort-common,--icf=none,-s -fuse-ld=gold
ld -r -o both.o work.o
ld -shared -o library.so work.o --unresolved-symbols=ignore-all -z notext
ld --verbose | grep -c SECTIONS
