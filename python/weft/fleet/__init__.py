"""One request for the processes of many machines, over NATS: the extra ``weft[fleet]``.

What decides is apart from what talks. These parts know neither a broker nor a process:

- ``names``: names of hosts and requests, and the subjects that they make;
- ``selectors``: which processes are meant, by the grammar in ``selector.lark``;
- ``protocol``: the documents that travel, and what of them is refused;
- ``folding``: values of many processes as one, and the newest of many reports;
- ``policy``: who may measure what;
- ``plan``: what is wanted and what is there, and what to do about the difference;
- ``results``: what the fleet's answer is;
- ``dividing``: values by key, and how much of that is told;
- ``machine``: what a host asks of the machine that it is on.

These do: ``broker`` talks to NATS, ``reading`` reads what it has stored, ``inventory`` looks at the
machine, ``claims`` keeps two hosts on one machine apart, ``weaving`` measures, ``audit`` notes
decisions, ``offering`` looks at files, ``sending`` sends and ``fetching`` fetches them, ``host`` is
the service. ``front`` is what asks it, ``blocking`` the same for programs without asyncio, and
``measuring`` a request that was made.
"""
