# Five objects of generated sources, a library and a program.
PARTS := $(patsubst %.src,%,$(sort $(wildcard part*.src)))
double = $(1)$(1)

program: libparts.a main.o
	gcc -o $@ main.o -L. -lparts
	@echo linked $(words $(PARTS)) $(call double,ab) $(filter %3,$(PARTS))

libparts.a: $(PARTS:=.o)
	@ar rcsD $@ $^

part%.o: part%.src
	gcc -O1 -x c -c -Dmain=$(basename $@) -o $@ $< \
	    $(foreach n,$(shell seq 0 14),-Df$(n)=$(basename $@)_f$(n))

main.o:
	echo '$(foreach p,$(PARTS),int $(p)(void);) int main(void) { return $(foreach p,$(PARTS),$(p)() +) 0; }' \
	    | gcc -O1 -x c -c -o $@ -

.PHONY: clean
clean:
	rm -f *.o *.a
