SOURCES := $(foreach n,1 2 3 4 5 6 7 8 9,part$(n).c)
OBJECTS := $(patsubst %.c,%.o,$(filter-out part3.c,$(SOURCES)))
define recipe
$(1): $(1:.o=.c)
	compile $$(word 1,$$^) $$(subst part,PART,$$@)
endef
all: $(OBJECTS) ; link $(sort $(OBJECTS)) $(words $(SOURCES)) $(if $(findstring part3,$(OBJECTS)),yes,no)
$(foreach object,$(OBJECTS),$(eval $(call recipe,$(object))))
%.c: ; generate $@ $(*F)
.PHONY: all
