package tracer

import (
	"bytes"
	"encoding/binary"
	"maps"
	"slices"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data.
const (
	dataNumber = 0
	dataArch   = 4
)

// x32 marks the numbers of an interface whose paths the tracer would not see.
const x32 = 0x40000000

// filter returns a seccomp program that stops a process at calls with paths and allows all others.
// It makes calls of other instruction sets, and calls whose paths are not visible, appear missing.
func filter() []unix.SockFilter {
	const absent = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	jump := func(test uint16, k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | test | unix.BPF_K, Jt: yes, Jf: no, K: k}
	}
	answer := func(k uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k}
	}
	program := []unix.SockFilter{
		load(dataArch), jump(unix.BPF_JEQ, unix.AUDIT_ARCH_X86_64, 1, 0), answer(absent),
		load(dataNumber), jump(unix.BPF_JGE, x32, 0, 1), answer(absent),
		jump(unix.BPF_JEQ, unix.SYS_IO_URING_SETUP, 0, 1), answer(absent),
	}
	for _, number := range slices.Sorted(maps.Keys(calls)) {
		program = append(program, jump(unix.BPF_JEQ, uint32(number), 0, 1), answer(unix.SECCOMP_RET_TRACE))
	}
	return append(program, answer(unix.SECCOMP_RET_ALLOW))
}

// encode encodes the program for a process's memory at address, after the header that the kernel
// requires.
func encode(program []unix.SockFilter, address uint64) []byte {
	var b bytes.Buffer
	header := []any{uint64(len(program)), address + 16} // the length is 16 bits and padding
	for _, field := range append(header, program) {
		_ = binary.Write(&b, binary.NativeEndian, field) // a write to a buffer never fails
	}
	return b.Bytes()
}
