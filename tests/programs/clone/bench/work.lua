-- Tables, closures, strings and recursion, as often as told; prints a sum.
local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
local seed, total = 7, 0
local function chance(n) seed = (seed * 16807) % 2147483647 return seed % n end
for _ = 1, tonumber(arg[1]) do
  local count, list = {}, {}
  for i = 1, 40000 do
    local key = "k" .. chance(2003)
    count[key] = (count[key] or 0) + 1
    list[i] = chance(1000003)
  end
  table.sort(list)
  for key, n in pairs(count) do total = total + n * #key end
  total = total + list[777] + fib(22)
  local text = table.concat(list, ",", 1, 5000)
  total = total + select(2, text:gsub("7%d", ""))
end
print(string.format("%d", total))
