package runner

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
)

// noteHeader is the size of the three lengths before the name in an ELF note.
const noteHeader = 12

// Build returns an id that distinguishes builds of a program: the build id that Go's linker has
// written into the file, which depends on all inputs of the build.
func Build(program string) (string, error) {
	f, err := elf.Open(program)
	if err != nil {
		return "", fmt.Errorf("read the build of %s: %w", program, err)
	}
	defer f.Close() // opened only for reading
	section := f.Section(".note.go.buildid")
	if section == nil {
		return "", fmt.Errorf("read the build of %s: it has none", program)
	}
	note, err := section.Data()
	if err == nil && len(note) < noteHeader {
		err = errors.New("its build note is truncated")
	}
	if err != nil {
		return "", fmt.Errorf("read the build of %s: %w", program, err)
	}
	name := uint64(binary.NativeEndian.Uint32(note))
	size := uint64(binary.NativeEndian.Uint32(note[4:]))
	begin := noteHeader + (name+3)&^3
	if begin+size > uint64(len(note)) || size == 0 {
		return "", fmt.Errorf("read the build of %s: its build note is truncated", program)
	}
	return string(bytes.Clone(note[begin : begin+size])), nil
}
