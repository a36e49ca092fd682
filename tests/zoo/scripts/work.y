%{
#include <stdio.h>
int yylex(void);
static void yyerror(const char *text) { printf("error: %s\n", text); }
%}
%token NUMBER
%left '+' '-'
%left '*' '/'
%%
lines: | lines line;
line: sum '\n' { printf("%d\n", $1); } | '\n' | error '\n' { yyerrok; };
sum: NUMBER | sum '+' sum { $$ = $1 + $3; } | sum '-' sum { $$ = $1 - $3; }
   | sum '*' sum { $$ = $1 * $3; } | sum '/' sum { $$ = $1 / $3; } | '(' sum ')' { $$ = $2; };
%%
int main(void) { return yyparse(); }
