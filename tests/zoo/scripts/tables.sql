create table people(id int primary key, name text, born date, tags text[], more jsonb);
insert into people select n, 'name ' || n, date '1950-01-01' + n, array['a' || n % 3, 'b'],
    jsonb_build_object('n', n, 'square', n * n) from generate_series(1, 5000) n;
create view old as select * from people where born < '1955-01-01';
select count(*), sum((more->>'square')::bigint) from old where 'a1' = any(tags);
\d people
\x on
select * from people where id = 77;
