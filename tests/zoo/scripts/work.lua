-- Tables, closures, coroutines, patterns and sorting.
local count = {}
for line in io.lines(arg[1]) do
  for word in line:gmatch("%a+") do count[word] = (count[word] or 0) + 1 end
end
local words = {}
for word in pairs(count) do words[#words + 1] = word end
table.sort(words, function(a, b) if count[a] ~= count[b] then return count[a] > count[b] end return a < b end)
for i = 1, 8 do print(words[i], count[words[i]]) end
local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
print(fib(25))
local function sieve(limit)
  local marks, found = {}, 0
  for n = 2, limit do
    if not marks[n] then
      found = found + 1
      for m = n * n, limit, n do marks[m] = true end
    end
  end
  return found
end
print(sieve(300000))
local producer = coroutine.wrap(function() for i = 1, 20000 do coroutine.yield(i * i) end end)
local sum = 0
for _ = 1, 20000 do sum = sum + producer() % 97 end
print(sum)
local Point = {}
Point.__index = Point
Point.__add = function(a, b) return setmetatable({ x = a.x + b.x, y = a.y + b.y }, Point) end
local at = setmetatable({ x = 0, y = 0 }, Point)
for i = 1, 100000 do at = at + setmetatable({ x = i, y = -i }, Point) end
print(string.format("%d %d", at.x, at.y))
local x = 0.5
for i = 1, 2000000 do x = 3.7 * x * (1 - x) if i % 1000 == 0 then x = 0.5 end end
print(string.format("%.12f", x))
local parts = {}
for i = 1, 20000 do parts[#parts + 1] = string.format("%x", i * 7919) end
local text = table.concat(parts, ",")
print(#text, (text:gsub("a", "A")):sub(1, 30), select(2, text:gsub("%d+", "")))
print(pcall(error, "told"))
print(select("#", table.unpack and table.unpack({ 1, 2, 3 }) or unpack({ 1, 2, 3 })))
