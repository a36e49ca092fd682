# Joins lines, turns some round, and counts by letters.
/^ba/ {
    N
    s/\n/ + /
    h
    :again
    s/\([a-z]\{2\}\)\([a-z]\{2\}\) \(.*\)$/\2\1 \3/
    t shown
    b again
    :shown
    p
    x
    s/[^ ]*$//p
}
$ {
    =
    s/ /\
/g
    p
}
