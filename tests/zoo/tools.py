"""Small programs: coreutils, shells, filters, archivers, libraries' own tools."""

from __future__ import annotations

from tests.zoo.inputs import noise, picture, replaced, sound, statements, table, text, tree, written
from tests.zoo.model import Exhibit, Server

GIT = {
    "GIT_AUTHOR_NAME": "Weft",
    "GIT_AUTHOR_EMAIL": "weft@example.org",
    "GIT_AUTHOR_DATE": "2001-09-09T01:46:40Z",
    "GIT_COMMITTER_NAME": "Weft",
    "GIT_COMMITTER_EMAIL": "weft@example.org",
    "GIT_COMMITTER_DATE": "2001-09-09T01:46:40Z",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_COUNT": "2",
    "GIT_CONFIG_KEY_0": "pack.threads",
    "GIT_CONFIG_VALUE_0": "1",
    "GIT_CONFIG_KEY_1": "init.defaultBranch",
    "GIT_CONFIG_VALUE_1": "main",
}

NUMBERS = {r"[0-9]+(\.[0-9]+)?k?": "N", r" +": " "}
"""Hides how fast something was."""

COREUTILS = [
    Exhibit(
        name="true",
        packages="coreutils",
        does="nothing, and printed a line",
        commands=("true", "echo done", "printf %s,%5.2f,%x name 3.14159 255"),
        short=True,
    ),
    Exhibit(
        name="sort",
        packages="coreutils",
        does="sorted, merged and checked 40,000 lines, by two threads",
        commands=(
            "sort --parallel=2 -o by-text text.txt",
            "sort -t, -k4,4g -k2,2 -o by-amount table.csv",
            "sort -u -t, -k3,3 table.csv",
            "sort -m by-text by-text > merged",
            "sort -c by-text",
        ),
        inputs=(text("text.txt", 20000), table("table.csv", 20000)),
        short=True,
    ),
    Exhibit(
        name="hashes",
        packages="coreutils",
        does="hashed 4 MB by seven methods",
        commands=tuple(
            f"{program} noise"
            for program in (
                *("md5sum", "sha1sum", "sha256sum", "sha512sum", "b2sum", "cksum"),
                "sum",
            )
        ),
        inputs=(noise("noise", 4_000_000),),
        short=True,
    ),
    Exhibit(
        name="text utilities",
        packages="coreutils",
        does="cut, joined, counted, folded and turned text round",
        commands=(
            "wc text.txt table.csv",
            "cut -d, -f2,4 table.csv > cut",
            "tr a-m A-M < text.txt > translated",
            "uniq -c cut > unique",
            "paste cut unique > pasted",
            "fold -w 40 -s text.txt > folded",
            "fmt -w 72 text.txt > formatted",
            "nl text.txt > numbered",
            "tac text.txt > backwards",
            "comm -12 cut cut",
            "expand text.txt > expanded",
            "pr -3 -h title -D then text.txt > pages",
            "ptx -w 60 few.txt > index",
            "od -A x -t x1z -v few.txt > dump",
        ),
        inputs=(text("text.txt", 5000), text("few.txt", 100, 4), table("table.csv", 5000)),
    ),
    Exhibit(
        name="number utilities",
        packages="coreutils",
        does="factored, counted, shuffled and encoded",
        commands=(
            "seq 1 7 70000 > numbers",
            "factor 18446744073709551557 18446744073709551615 12345678901234567890",
            "numfmt --to=iec --invalid=ignore < numbers > units",
            "shuf --random-source=noise numbers > shuffled",
            "base64 noise > encoded",
            "base64 -d encoded > decoded",
            "basenc --z85 -w 60 four > z85",
            "expr 12345 * 6789 % 1000",
            "test 3 -lt 5 -a -f numbers",
        ),
        inputs=(noise("noise", 500_000), noise("four", 4_000)),
        short=True,
    ),
    Exhibit(
        name="file utilities",
        packages="coreutils",
        does="copied, moved, split, linked, listed and removed files",
        commands=(
            "cp -a tree copy",
            "ls -lR --time-style=long-iso tree",
            "du -a --apparent-size tree",
            "mkdir -p a/b/c",
            "ln -s ../tree a/link",
            "mv copy a/moved",
            "dd if=noise of=part bs=1000 skip=3 count=200 conv=swab status=none",
            "split -b 100000 -d noise piece",
            "cat piece00 piece01 piece02 > joined",
            "head -c 1000 noise > head",
            "tail -c 1000 noise > tail",
            "truncate -s 12345 part",
            "chmod 640 part",
            "install -m 755 head a/installed",
            "stat -c %n,%s,%a,%F part a/link a/installed",
            "readlink -f a/link",
            "csplit -s tail 1",
            "rm -r tree/part1",
            "tee one two < head > three",
        ),
        inputs=(tree("tree", 200), noise("noise", 300_000)),
        normal={r"^total \d+$": "total"},
        short=True,
    ),
]

SHELLS = [
    Exhibit(
        name="bash",
        packages="bash coreutils",
        does="ran a script with functions, arrays, pipes, subshells, traps and jobs",
        commands=("bash work.bash 3000",),
        scripts=("work.bash",),
        inputs=(text("text.txt", 2000),),
        short=True,
    ),
    Exhibit(
        name="dash",
        packages="dash coreutils",
        does="ran a script with 100 forks, here documents and traps",
        commands=("dash work.sh",),
        scripts=("work.sh",),
        short=True,
    ),
    Exhibit(
        name="zsh",
        packages="zsh",
        does="ran a script with arrays, patterns and coprocesses",
        commands=("zsh -f work.zsh",),
        scripts=("work.zsh",),
    ),
    Exhibit(
        name="busybox",
        packages="busybox-static",
        does="ran a shell script of its own, statically linked, with 40 of its programs",
        commands=("busybox sh work.busybox",),
        scripts=("work.busybox",),
        inputs=(text("text.txt", 3000),),
        short=True,
    ),
]

FILTERS = [
    Exhibit(
        name="mawk",
        packages="mawk",
        does="summed, counted words and sieved primes",
        commands=("mawk -F, -f sums.awk table.csv", "mawk -f words.awk text.txt"),
        scripts=("sums.awk", "words.awk"),
        inputs=(table("table.csv", 40000), text("text.txt", 10000)),
        short=True,
    ),
    Exhibit(
        name="gawk",
        packages="gawk",
        does="the same as mawk, and sorted arrays",
        commands=(
            "gawk -F, -f sums.awk table.csv",
            "gawk -f words.awk text.txt",
            "gawk -f sorted.awk text.txt",
        ),
        scripts=("sums.awk", "words.awk", "sorted.awk"),
        inputs=(table("table.csv", 40000), text("text.txt", 10000)),
    ),
    Exhibit(
        name="sed",
        packages="sed",
        does="edited 20,000 lines, in place too, and ran a script with branches",
        commands=(
            r"sed -E 's/(\w+) (\w+)/\2 \1/g;s/ba+/<&>/g' text.txt > swapped",
            "sed -i.old -e /ka/d -e y/abc/xyz/ text.txt",
            "sed -n -f work.sed text.txt.old",
        ),
        scripts=("work.sed",),
        inputs=(text("text.txt", 10000),),
        short=True,
    ),
    Exhibit(
        name="grep",
        packages="grep",
        does="searched by fixed, extended and Perl's expressions, the last from a JIT",
        commands=(
            "grep -c ka text.txt",
            "grep -Eno (ba|ko)[a-z]*(la|ri) text.txt",
            r"grep -P '(\b\w+\b) \1' text.txt",
            r"grep -Pc '^(?=.*lo)(?!.*koba).*\w{7}' text.txt",
            "grep -rl sase tree",
            "grep -F -f few.txt text.txt",
            r"grep -E '(.)(.).*\2\1.*\1\2' few.txt",
        ),
        inputs=(text("text.txt", 20000), text("few.txt", 30), tree("tree", 100)),
        normal={r"^tree/.*$\n?": ""},
        short=True,
    ),
    Exhibit(
        name="find",
        packages="findutils coreutils",
        does="walked 200 files and started a program for many of them",
        commands=(
            r"find tree -type f -size +1k -printf '%s\n' -fprintf sizes '%f,%s\n'",
            "find tree -name *.c -exec wc -c {} + -exec cksum {} ;",
            "find tree -name *.log -delete",
            "bash -c 'find tree -type f -print0 | sort -z | xargs -0 -n 20 -P 2 cksum | sort'",
        ),
        inputs=(tree("tree", 200),),
        files=("tree/*", "order/*"),
        normal={r"^\d+\n": ""},
        short=True,
    ),
    Exhibit(
        name="diff and patch",
        packages="diffutils patch",
        does="compared texts and trees and applied the difference",
        commands=(
            "bash -c 'diff -u one.txt two.txt > changes; test $? = 1'",
            "patch one.txt changes",
            "cmp one.txt two.txt",
            "bash -c 'diff -r a b; test $? = 1'",
            "bash -c 'diff3 one.txt two.txt three.txt | cksum'",
            "bash -c 'sdiff -s one.txt three.txt | cksum'",
        ),
        inputs=(
            *(text("one.txt", 3000), text("three.txt", 300, 7)),
            replaced("two.txt", "one.txt", ("kama", "KAMA"), ("bo\n", "bo\n\n")),
            *(tree("a", 60), tree("b", 61)),
        ),
        normal={r"\t20\d\d-.*$": ""},
        short=True,
    ),
    Exhibit(
        name="jq",
        packages="jq",
        does="grouped, sorted and rewrote 20,000 objects",
        commands=(
            "jq -n [range(20000)|{id:.,part:(.%7),name:(.*7919%1000|tostring)}] > all.json",
            "jq -c group_by(.part)|map({n:length,m:(map(.name|tonumber)|add)}) all.json",
            "jq -r .[]|select(.id%997==0)|[.id,.name]|@csv all.json",
        ),
        short=True,
    ),
    Exhibit(
        name="bc",
        packages="bc",
        does="computed pi and e to 600 digits and a factorial",
        commands=("bc -lq work.bc",),
        scripts=("work.bc",),
        short=True,
    ),
    Exhibit(
        name="ed",
        packages="ed",
        does="edited a text by commands",
        commands=("ed -s text.txt < commands.ed",),
        scripts=("commands.ed",),
        inputs=(text("text.txt", 1000),),
        short=True,
    ),
    Exhibit(
        name="vim",
        packages="vim-tiny vim",
        does="edited a text by commands, with macros and its script language",
        commands=("vim -u NONE -i NONE -n -es -S work.vim text.txt",),
        scripts=("work.vim",),
        inputs=(text("text.txt", 1000),),
        stderr=False,
    ),
    Exhibit(
        name="m4",
        packages="m4",
        does="expanded recursive macros",
        commands=("m4 work.m4",),
        scripts=("work.m4",),
    ),
    Exhibit(
        name="file",
        packages="file",
        does="guessed what 100 files hold",
        commands=("bash -c 'file -b tree/part*/*/* text.txt noise /bin/true'",),
        inputs=(tree("tree", 100), text("text.txt", 100), noise("noise", 10000)),
        short=True,
    ),
    Exhibit(
        name="xmllint",
        packages="libxml2-utils",
        does="made, checked and searched a document",
        commands=(
            "xmllint --format work.xml > pretty.xml",
            "xmllint --xpath count(//item) work.xml",
        ),
        inputs=(
            written(
                "work.xml",
                "<all>"
                + "".join(f"<item id='{n}'><b>{n * n % 97}</b></item>" for n in range(20000))
                + "</all>",
            ),
        ),
    ),
]

ARCHIVERS = [
    Exhibit(
        name="tar",
        packages="tar gzip",
        does="packed, listed and unpacked 400 files, through gzip too",
        commands=(
            "tar --sort=name --numeric-owner -cf tree.tar tree",
            "tar -tvf tree.tar",
            "bash -c 'mkdir out && tar -xf tree.tar -C out'",
            "tar --sort=name -I 'gzip -n' -cf tree.tgz tree",
            "tar -df tree.tgz",
        ),
        inputs=(tree("tree", 400),),
        short=True,
    ),
    *(
        Exhibit(
            name=name,
            packages=name if name != "xz" else "xz-utils",
            does=does,
            commands=(
                f"{name} {options} -k -c text.txt > packed",
                f"{name} -d -c packed > unpacked",
                f"{name} -c noise > packed-noise",
                f"{name} -t packed-noise",
                "cmp text.txt unpacked",
            ),
            inputs=(text("text.txt", lines), noise("noise", 300_000)),
            short=short,
        )
        for name, options, lines, does, short in (
            ("gzip", "-9n", 30000, "packed 2 MB of text and unpacked it", False),
            ("bzip2", "-9", 20000, "packed 1 MB of text and unpacked it", False),
            ("xz", "-6 -T2 --block-size=300000", 20000, "packed 1 MB by two threads", True),
            ("zstd", "-9 -T2", 60000, "packed 4 MB by two threads", True),
            ("lz4", "-9", 60000, "packed 4 MB of text and unpacked it", False),
            ("brotli", "-q 9", 20000, "packed 1 MB of text and unpacked it", False),
            ("pigz", "-9n -p 2", 60000, "packed 4 MB by two threads", False),
        )
    ),
    Exhibit(
        name="zip",
        packages="zip unzip",
        does="packed, tested and unpacked 200 files",
        commands=(
            "zip -X -q -r tree.zip tree",
            "unzip -t tree.zip",
            "unzip -q tree.zip -d out",
        ),
        inputs=(tree("tree", 200),),
        normal={r"(?s)\A\d+\nPK.*": "archive"},
    ),
    Exhibit(
        name="7z",
        packages="p7zip-full",
        does="packed 1 MB by LZMA2 and unpacked it",
        commands=("7z a -bd -mmt=2 -mtm=off -mtc=off out.7z text.txt", "7z t -bd out.7z"),
        inputs=(text("text.txt", 20000),),
        files=("text.txt",),
        normal={r"(?m)^.*(Mhz|CPU|bytes free|RAM|p7zip).*$": ""},
    ),
    Exhibit(
        name="rsync",
        packages="rsync",
        does="copied a tree, then what had changed in it",
        commands=(
            "rsync -a tree/ copy/",
            "bash -c 'cat text.txt >> tree/part0/deep0/file0.txt; rm -r tree/part1'",
            "rsync -a --delete --no-whole-file -c tree/ copy/",
        ),
        inputs=(tree("tree", 300), text("text.txt", 1000)),
    ),
    Exhibit(
        name="cpio",
        packages="cpio",
        does="packed and unpacked 200 files",
        commands=(
            "bash -c 'find tree | sort | cpio --quiet -o -H newc > tree.cpio'",
            "bash -c 'mkdir out && cd out && cpio --quiet -i < ../tree.cpio'",
        ),
        inputs=(tree("tree", 200),),
        files=("out/*",),
    ),
]

LIBRARIES = [
    Exhibit(
        name="openssl",
        packages="openssl",
        does="hashed, enciphered, made keys, signed and verified",
        commands=(
            "openssl dgst -sha3-512 noise",
            "openssl dgst -blake2b512 noise",
            "openssl enc -aes-256-cbc -pbkdf2 -S 0011223344556677 -k word -in noise -out secret",
            "openssl enc -d -aes-256-cbc -pbkdf2 -S 0011223344556677 -k word -in secret -out plain",
            "cmp noise plain",
            "openssl enc -chacha20 -K 00ff -iv 01 -in noise -out stream",
            "openssl genpkey -algorithm ED25519 -out ed.pem",
            "openssl pkeyutl -sign -rawin -inkey ed.pem -in few -out signature",
            "openssl pkeyutl -verify -rawin -inkey ed.pem -in few -sigfile signature",
            "openssl genrsa -out rsa.pem 2048",
            "openssl rsa -in rsa.pem -check -noout",
            "openssl prime 170141183460469231731687303715884105727",
        ),
        inputs=(noise("noise", 2_000_000), noise("few", 1000)),
        files=("secret", "plain", "stream"),
        stderr=False,
        short=True,
    ),
    Exhibit(
        name="openssl speed",
        packages="openssl",
        does="measured its ciphers, hashes and curves for a second each",
        commands=(
            "openssl speed -seconds 1 -bytes 1024 -evp aes-256-gcm",
            "openssl speed -seconds 1 -bytes 1024 sha256 sha512 md5",
            "openssl speed -seconds 1 -bytes 1024 -evp chacha20-poly1305",
            "openssl speed -seconds 1 ecdsap256 ed25519 rsa2048",
        ),
        stderr=False,
        normal=NUMBERS,
    ),
    Exhibit(
        name="openssl TLS",
        packages="openssl",
        does="shook hands on loopback by TLS 1.2 and 1.3, and sent 1 MB",
        prepare=(
            "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 9"
            " -subj /CN=localhost",
        ),
        server=Server(
            "openssl s_server -accept 127.0.0.1:{port} -key key.pem -cert cert.pem -WWW -naccept 3"
        ),
        commands=(
            'bash -c \'printf "GET /text.txt HTTP/1.0\\r\\n\\r\\n" | openssl s_client -quiet'
            " -ign_eof -tls1_3 -CAfile cert.pem -connect 127.0.0.1:{port} 2>/dev/null'",
            'bash -c \'printf "GET /text.txt HTTP/1.0\\r\\n\\r\\n" | openssl s_client -quiet'
            " -ign_eof -tls1_2 -CAfile cert.pem -connect 127.0.0.1:{port} 2>/dev/null'",
            "bash -c 'openssl s_client -brief -cipher ECDHE-RSA-CHACHA20-POLY1305 -tls1_2"
            " -CAfile cert.pem -connect 127.0.0.1:{port} 2>&1 </dev/null | grep -v Server'",
        ),
        inputs=(text("text.txt", 20000),),
        files=("text.txt",),
        short=True,
    ),
    Exhibit(
        name="sqlite3",
        packages="sqlite3",
        does="ran a script of 20,000 statements: indexes, joins, windows, triggers, VACUUM",
        commands=(
            "sqlite3 -batch out.db < script.sql",
            "sqlite3 out.db .dump > dump.sql",
            "sqlite3 again.db < dump.sql",
            "sqlite3 again.db 'select count(*), total(amount) from sales'",
        ),
        inputs=(statements("script.sql", 8000),),
        files=("dump.sql",),
        short=True,
    ),
    Exhibit(
        name="git",
        packages="git",
        does="made a repository with branches, merged, cloned, logged, repacked and checked it",
        commands=(
            "bash work.git",
            "git -C repo log --stat --graph --all",
            "git clone -q --no-local repo clone",
            "git -C clone gc -q --aggressive --prune=now",
            "git -C clone fsck --full --strict",
            "git -C clone blame -s text.txt",
            "git -C clone grep -c kala",
            "git -C clone archive --format=tar -o ../archive.tar HEAD",
        ),
        scripts=("work.git",),
        inputs=(text("text.txt", 2000), tree("tree", 100)),
        files=("archive.tar", "clone/text.txt", "clone/tree/*"),
        environment=GIT,
        stderr=False,
        short=True,
    ),
    Exhibit(
        name="imagemagick",
        packages="imagemagick-6.q16 imagemagick",
        does="resized, blurred, turned and wrote pictures as PNG and JPEG",
        needs=("convert-im6.q16",),
        commands=(
            "convert-im6.q16 in.ppm -resize 50% -blur 0x2 +set date:create +set date:modify"
            " -define png:exclude-chunks=date,time small.png",
            "convert-im6.q16 in.ppm -rotate 30 -quality 80 turned.jpg",
            "convert-im6.q16 in.ppm -colorspace Lab -equalize -edge 1 edges.ppm",
            r"identify-im6.q16 -format '%wx%h,%#\n' edges.ppm",
        ),
        inputs=(picture("in.ppm", 400, 300),),
        files=("turned.jpg", "edges.ppm", "small.png"),
    ),
    Exhibit(
        name="ffmpeg",
        packages="ffmpeg",
        does="made a film with sound, H.264 and AAC, and decoded it again",
        commands=(
            "ffmpeg -nostdin -v error -f lavfi -i testsrc2=size=320x240:rate=25 -i in.wav -t 3"
            " -c:v libx264 -preset medium -threads 2 -c:a aac -fflags +bitexact"
            " -flags:v +bitexact -flags:a +bitexact film.mp4",
            "ffmpeg -nostdin -v error -i film.mp4 -map 0 -f framemd5 -",
            "ffmpeg -nostdin -v error -i film.mp4 -vf scale=160:120,hue=h=60 -f md5 -",
        ),
        inputs=(sound("in.wav", 3),),
    ),
    Exhibit(
        name="flac",
        packages="flac",
        does="packed ten seconds of sound and unpacked it",
        commands=(
            "flac -s -8 -o out.flac in.wav",
            "flac -s -d -o out.wav out.flac",
            "cmp in.wav out.wav",
        ),
        inputs=(sound("in.wav", 10),),
    ),
    Exhibit(
        name="ghostscript",
        packages="ghostscript",
        does="drew a page of PostScript, and made a PDF of it",
        commands=(
            "gs -q -dNOPAUSE -dBATCH -dSAFER -sDEVICE=ppmraw -r100 -sOutputFile=out.ppm work.ps",
            "gs -q -dNOPAUSE -dBATCH -dSAFER -sDEVICE=bbox work.ps",
        ),
        scripts=("work.ps",),
        files=("out.ppm",),
    ),
    Exhibit(
        name="graphviz",
        packages="graphviz",
        does="laid out a graph of 150 nodes by two methods",
        commands=("dot -Tplain work.dot", "neato -Tplain work.dot"),
        inputs=(
            written(
                "work.dot",
                "digraph g {\n"
                + "".join(f"n{n} -> n{n * n % 150};\nn{n} -> n{n * 7 % 150};\n" for n in range(150))
                + "}\n",
            ),
        ),
    ),
    Exhibit(
        name="curl",
        packages="curl nginx-core",
        does="fetched files from a server on loopback, in parallel too",
        needs=("nginx",),
        server=Server("nginx -p . -c nginx.conf -e stderr", pid_file="nginx.pid", signal="QUIT"),
        prepare=("bash prepare.nginx {port}",),
        commands=(
            "curl -sS -o one http://127.0.0.1:{port}/text.txt",
            "curl -sS --compressed -o two http://127.0.0.1:{port}/text.txt",
            "curl -sS -Z -o part#1 http://127.0.0.1:{port}/tree/part[0-6]/",
            "curl -sS -r 1000-1999 http://127.0.0.1:{port}/text.txt",
        ),
        scripts=("prepare.nginx",),
        inputs=(text("text.txt", 20000), tree("tree", 20)),
        files=("one", "two"),
        stderr=False,
    ),
]

TOOLS = [*COREUTILS, *SHELLS, *FILTERS, *ARCHIVERS, *LIBRARIES]
