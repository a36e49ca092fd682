create table people(id int primary key, name text, born date, tags text[], more jsonb);

insert into people select n, 'name ' || n, date '1950-01-01' + n, array['a' || n % 3, 'b'], jsonb_build_object('n', n, 'square', n * n) from generate_series(1, 600) n;

create view old as select * from people where born < '1951-01-01';

select count(*), sum((more->>'square')::bigint) from old where 'a1' = any(tags);

create table words as select n, md5(n::text) as word from generate_series(1, 1500) n;

create index on words(word);

create unique index on words(n);

analyze words;

select substr(word, 1, 1) as letter, count(*), sum(n), avg(n)::numeric(10,2) from words group by 1 order by 1;

select a.n, b.n from words a join words b on substr(a.word, 1, 4) = substr(b.word, 2, 4) order by 1, 2 limit 5;

select p.name, w.word, rank() over (partition by p.id % 3 order by w.word) from people p left join words w on w.n = p.id where p.id < 30;

with recursive t(n) as (select 1 union all select n + 1 from t where n < 200) select sum(n), string_agg(n::text, ',' order by n desc) from t;

update people set name = upper(name) || '!' where id % 5 = 0 returning id;

delete from words where word like 'a%' or word ~ '^b[0-9]+c';

select to_char(born, 'Day DD Month YYYY'), extract(dow from born), age(date '2000-01-01', born) from people where id < 10;

select '{"a": [1, 2, {"b": null}]}'::jsonb #> '{a,2}', jsonb_path_query('[1, 2, 3]', '$[*] ? (@ > 1)'), '[1,5)'::int4range * '[3,9)'::int4range;

do $$ declare total bigint := 0; begin for i in 1..500 loop total := total + i % 7; if i % 100 = 0 then begin perform 1 / (i - i); exception when division_by_zero then total := total + 1; end; end if; end loop; raise info '%', total; end $$;

create function twice(x int) returns int language sql as 'select x * 2';

select twice(id) from people where twice(id) between 10 and 20 order by 1;

select 1 / (count(*) - count(*)) from words;

begin;

savepoint s;

insert into people(id) values (1);

rollback;

select * from people order by more->>'n' desc, born limit 5 offset 3;

explain select * from people p, words w where p.id = w.n and w.word > '8';

vacuum words;

select relname, relkind from pg_class where relname like 'w%' order by 1;

drop table words cascade;

checkpoint;
