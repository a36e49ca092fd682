(* Trees, closures, exceptions and a collector that moves things. *)
type tree = Leaf | Node of tree * int * tree

let rec insert x = function
  | Leaf -> Node (Leaf, x, Leaf)
  | Node (l, y, r) as t ->
    if x < y then Node (insert x l, y, r) else if x > y then Node (l, y, insert x r) else t

let rec fold f acc = function Leaf -> acc | Node (l, x, r) -> fold f (f (fold f acc l) x) r
let rec fib n = if n < 2 then n else fib (n - 1) + fib (n - 2)

exception Found of int

let () =
  let tree = ref Leaf in
  for i = 1 to 20000 do
    tree := insert (i * 7919 mod 100003) !tree
  done;
  Printf.printf "%d %d\n" (fold (fun acc x -> (acc * 31 + x) land 0xffffff) 0 !tree) (fib 25);
  let caught = ref 0 in
  for i = 1 to 10000 do
    try if i mod 3 = 0 then raise (Found i) with Found n -> caught := !caught + n
  done;
  let table = Hashtbl.create 16 in
  List.iter (fun i -> Hashtbl.replace table (string_of_int (i mod 997)) i) (List.init 20000 Fun.id);
  Printf.printf "%d %d %.6f\n" !caught (Hashtbl.length table) (sqrt 2.0 *. exp 1.0)
