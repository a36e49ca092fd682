#!/usr/bin/env escript
%% Ten thousand processes in a ring of messages, and some arithmetic.
main(_) ->
    Self = self(),
    First = lists:foldl(fun(_, Next) -> spawn(fun() -> pass(Next) end) end, Self, lists:seq(1, 10000)),
    First ! {token, 0},
    receive {token, N} -> io:format("passed ~p~n", [N]) end,
    io:format("~p~n", [fib(24)]),
    Pids = [spawn_monitor(fun() -> exit(I rem 7) end) || I <- lists:seq(1, 1000)],
    Sum = lists:sum([receive {'DOWN', R, process, P, Why} -> Why end || {P, R} <- Pids]),
    io:format("~p ~p~n", [Sum, (catch fail(Sum))]),
    Map = maps:from_list([{I, I * I} || I <- lists:seq(1, 20000)]),
    io:format("~p~n", [maps:fold(fun(_, V, A) -> A + V rem 97 end, 0, Map)]).

pass(Next) -> receive {token, N} -> Next ! {token, N + 1} end.

fail(N) -> try N div (N - N) catch error:badarith -> caught end.

fib(N) when N < 2 -> N;
fib(N) -> fib(N - 1) + fib(N - 2).
