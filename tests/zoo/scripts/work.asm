; Prints the sum of the primes below 100,000, without a library.
bits 64
global _start
section .bss
sieve: resb 100000
text: resb 32
section .text
_start:
    xor r12, r12
    mov rsi, 2
next:
    lea rax, [rel sieve]
    cmp byte [rax + rsi], 0
    jne over
    add r12, rsi
    lea rdi, [rsi + rsi]
strike:
    cmp rdi, 100000
    jae over
    lea rax, [rel sieve]
    mov byte [rax + rdi], 1
    add rdi, rsi
    jmp strike
over:
    inc rsi
    cmp rsi, 100000
    jb next
    lea rbx, [rel text + 31]
    mov byte [rbx], 10
    mov rax, r12
    mov rcx, 10
digit:
    xor rdx, rdx
    div rcx
    add dl, '0'
    dec rbx
    mov [rbx], dl
    test rax, rax
    jnz digit
    mov rax, 1
    mov rdi, 1
    mov rsi, rbx
    lea rdx, [rel text + 32]
    sub rdx, rbx
    syscall
    mov rax, 60
    xor rdi, rdi
    syscall
