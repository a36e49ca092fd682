-- What pgbench left must agree with itself, and be the same each time.
select count(*), sum(delta) from pgbench_history;
select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history) as accounts,
       (select sum(tbalance) from pgbench_tellers) = (select sum(delta) from pgbench_history) as tellers,
       (select sum(bbalance) from pgbench_branches) = (select sum(delta) from pgbench_history) as branches;
create table words as select n, md5(n::text) as word from generate_series(1, 50000) n;
create index on words(word);
analyze words;
select substr(word, 1, 1) as letter, count(*), sum(n) from words group by 1 order by 1;
set jit_above_cost = 0;
set max_parallel_workers_per_gather = 2;
set parallel_setup_cost = 0;
select sum(n * 2 + 1), avg(length(word))::numeric(10, 2), max(word) from words where n % 3 = 0;
select a.n, b.n from words a join words b on substr(a.word, 1, 8) = substr(b.word, 2, 8) order by 1, 2 limit 5;
do $$ declare total bigint := 0; begin for i in 1..100000 loop total := total + i % 7; end loop; raise info '%', total; end $$;
select 1 / (count(*) - count(*)) from words;
