# Blocks, hashes, expressions, fibers, threads, a digest, fork and signals.
require "digest"
text = File.read(ARGV[0])
count = Hash.new(0)
text.split.each { |word| count[word] += 1 }
p count.sort_by { |word, n| [-n, word] }.first(5)
puts text.scan(/\b(\w\w)\w*\1\b/).size, Digest::SHA256.hexdigest(text)
def fib(n) = n < 2 ? n : fib(n - 1) + fib(n - 2)
puts fib(22)
primes = Fiber.new { n = 1; loop { n += 1; Fiber.yield n if (2..Math.sqrt(n)).none? { |d| (n % d).zero? } } }
puts 500.times.map { primes.resume }.last
lock = Mutex.new
total = 0
8.times.map { |t| Thread.new { 1000.times { |i| lock.synchronize { total += i ^ t } } } }.each(&:join)
puts total
Point = Struct.new(:x, :y) { def +(o) = Point.new(x + o.x, y + o.y) }
p (1..20000).map { |n| Point.new(n, n * n) }.reduce(:+)
puts (1..200).reduce(:*).to_s.size, 2**300
reader, writer = IO.pipe
fork { writer.puts "from a child"; exit!(0) }
Process.wait
puts reader.gets
trap("USR1") { $stdout.puts "signal" }
Process.kill("USR1", Process.pid)
sleep 0.05
begin; raise ArgumentError, "told"; rescue => e; puts e.message; ensure; puts "ensured"; end
20000.times { |n| "x" * (n % 100) }
GC.start
puts `echo #{[3, 1, 2].sort.join}`
