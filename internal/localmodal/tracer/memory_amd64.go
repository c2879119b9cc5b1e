package tracer

import (
	"bytes"
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"
)

// Each thread of a traced process has a slot for translated arguments in a mapping that the tracer
// creates in the process's memory. A stack could not be used, since it may end anywhere.
const (
	slots    = 128
	slotSize = 64 << 10
	scratch  = slots * slotSize
)

// memory is the address space of a process.
type memory struct {
	scratch uint64 // address of the mapping; 0 if there is none yet
	next    int
	free    []int
}

func (m *memory) take() int {
	if n := len(m.free); n > 0 {
		slot := m.free[n-1]
		m.free = m.free[:n-1]
		return slot
	}
	m.next++
	return (m.next - 1) % slots // further threads share slots: a conflict requires calls within microseconds of each other
}

func (m *memory) release(slot int) { m.free = append(m.free, slot) }

func read(tid int, address uint64, buf []byte) (int, error) {
	local := unix.Iovec{Base: &buf[0]}
	local.SetLen(len(buf))
	return unix.ProcessVMReadv(tid, []unix.Iovec{local}, []unix.RemoteIovec{{Base: uintptr(address), Len: len(buf)}}, 0)
}

func write(tid int, address uint64, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	local := unix.Iovec{Base: &data[0]}
	local.SetLen(len(data))
	n, err := unix.ProcessVMWritev(tid, []unix.Iovec{local}, []unix.RemoteIovec{{Base: uintptr(address), Len: len(data)}}, 0)
	if err == nil && n != len(data) {
		err = unix.EFAULT
	}
	return err
}

// readString reads up to a zero byte, page by page, since the next page may not be mapped.
func readString(tid int, address uint64, limit int) (string, error) {
	page := uint64(os.Getpagesize())
	var text []byte
	for len(text) < limit {
		chunk := make([]byte, min(page-address%page, 256))
		n, err := read(tid, address, chunk)
		if err != nil {
			return "", unix.EFAULT
		}
		if end := bytes.IndexByte(chunk[:n], 0); end >= 0 {
			return string(append(text, chunk[:end]...)), nil
		}
		text = append(text, chunk[:n]...)
		address += uint64(n)
	}
	return "", unix.ENAMETOOLONG
}

func readWord(tid int, address uint64) (uint64, error) {
	buf := make([]byte, 8)
	if n, err := read(tid, address, buf); err != nil || n != len(buf) {
		return 0, unix.EFAULT
	}
	return binary.NativeEndian.Uint64(buf), nil
}
