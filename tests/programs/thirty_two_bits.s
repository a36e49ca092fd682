# The smallest 32-bit program that says "ready" and works until its input ends.
    .globl _start
_start:
    movl $4, %eax          # write
    movl $1, %ebx
    movl $ready, %ecx
    movl $6, %edx
    int $0x80
    movl $3, %eax          # read
    movl $0, %ebx
    movl $buffer, %ecx
    movl $1, %edx
    int $0x80
    movl $1, %eax          # exit
    movl $7, %ebx
    int $0x80

    .data
ready:
    .ascii "ready\n"
buffer:
    .byte 0
