# A facade over CMake: make, make test, make install PREFIX=/usr/local.
PREFIX ?= /usr/local

all:
	cmake --preset release >/dev/null
	cmake --build --preset release

test:
	./test.sh

install: all
	cmake --install build/release --prefix "$(PREFIX)"

clean:
	rm -rf build

.PHONY: all test install clean
