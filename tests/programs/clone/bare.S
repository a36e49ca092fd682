# A program without a C library: calls itself, jumps through a table, and prints the sum it gets.
        .intel_syntax noprefix
        .globl  _start
        .text
_start:
        mov     rbx, rsp                # the kernel gives the stack aligned, with argc on top
        test    bl, 15
        jnz     wrong
        cmp     qword ptr [rsp], 1
        jne     wrong
        xor     r12d, r12d              # the sum
        mov     r13d, 1000
again:
        mov     edi, r13d
        and     edi, 7
        call    factorial
        add     r12, rax
        mov     ecx, r13d
        and     ecx, 3
        jmp     [table + rcx * 8]
zero:   add     r12, 1
        jmp     next
one:    xor     r12, 2
        jmp     next
two:    lea     r12, [r12 + r12 * 2]
        and     r12d, 0xffffff
        jmp     next
three:  sub     r12, 3
next:   dec     r13d
        jnz     again
        cmp     rsp, rbx
        jne     wrong

        lea     rdi, number[rip + 16]   # in decimal, from its end
        mov     rax, r12
        mov     ecx, 10
digit:  xor     edx, edx
        div     rcx
        add     dl, '0'
        dec     rdi
        mov     [rdi], dl
        test    rax, rax
        jnz     digit
        mov     rsi, rdi
        lea     rdx, number[rip + 17]
        sub     rdx, rsi
        mov     edi, 1
        mov     eax, 1
        syscall
after:  lea     r8, after[rip]
        cmp     rcx, r8                 # where it goes on is in rcx
        jne     wrong
        xor     edi, edi
leave:  mov     eax, 231
        syscall
wrong:  mov     edi, 1
        jmp     leave

factorial:
        mov     eax, 1
        cmp     edi, 1
        jbe     done
        push    rdi
        dec     edi
        call    factorial
        pop     rdi
        imul    rax, rdi
done:   ret

        .data
table:  .quad   zero, one, two, three
number: .ascii  "                \n"
        .section .note.GNU-stack, "", @progbits
