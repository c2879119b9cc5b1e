package tracer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// stop is a thread that is stopped before a system call.
type stop struct {
	task    *task
	regs    unix.PtraceRegs
	used    uint64 // used bytes of the slot
	changed bool   // an argument has been replaced
}

// outcome is a handler's decision about a call. If neither field is set, the call is executed.
type outcome struct {
	err   error   // the call fails with this error
	value *uint64 // the call is skipped and returns this value
}

var proceed = outcome{}

func failed(err error) outcome { return outcome{err: err} }
func result(n int) outcome {
	v := uint64(n)
	return outcome{value: &v}
}

func (s *stop) argument(i int) *uint64 {
	return []*uint64{&s.regs.Rdi, &s.regs.Rsi, &s.regs.Rdx, &s.regs.R10, &s.regs.R8, &s.regs.R9}[i]
}

// callMade translates a call.
func (t *Tracer) callMade(k *task) {
	s := &stop{task: k}
	if unix.PtraceGetRegs(k.tid, &s.regs) != nil {
		return // killed
	}
	before := s.regs
	if k.memory.scratch == 0 {
		t.allocate(k, s)
		return
	}
	c := calls[s.regs.Orig_rax]
	var o outcome
	if c.special != nil {
		o = c.special(t, k, s)
	} else {
		o = t.translate(s, c.paths)
	}
	switch {
	case o.err != nil:
		var errno unix.Errno
		if !errors.As(o.err, &errno) {
			errno = unix.EIO
		}
		value := -int64(errno)
		t.skip(s, before, uint64(value))
	case o.value != nil:
		t.skip(s, before, *o.value)
	case s.changed:
		k.saved, k.doing = before, restoring
		_ = unix.PtraceSetRegs(k.tid, &s.regs) // fails if it was killed meanwhile
	}
	t.resume(k, 0)
}

// skip skips the call and sets its result.
func (t *Tracer) skip(s *stop, before unix.PtraceRegs, value uint64) {
	before.Orig_rax, before.Rax = math.MaxUint64, value
	_ = unix.PtraceSetRegs(s.task.tid, &before) // fails if it was killed meanwhile
}

// allocate replaces the thread's call by one that maps memory for the tracer. The thread then
// repeats its own call.
func (t *Tracer) allocate(k *task, s *stop) {
	k.saved, k.doing = s.regs, allocating
	s.regs.Orig_rax, s.regs.Rax = unix.SYS_MMAP, unix.SYS_MMAP
	s.regs.Rdi, s.regs.Rsi, s.regs.Rdx = 0, scratch, unix.PROT_READ|unix.PROT_WRITE
	s.regs.R10, s.regs.R8, s.regs.R9 = unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE, math.MaxUint64, 0
	_ = unix.PtraceSetRegs(k.tid, &s.regs) // fails if it was killed meanwhile
	t.resume(k, 0)
}

// syscallSize is the size of the syscall instruction.
const syscallSize = 2

// callDone restores the arguments that were replaced for a call, since a program may rely on their
// values.
func (t *Tracer) callDone(k *task) {
	var regs unix.PtraceRegs
	if unix.PtraceGetRegs(k.tid, &regs) != nil {
		return // killed
	}
	switch k.doing {
	case restoring:
		regs.Rdi, regs.Rsi, regs.Rdx = k.saved.Rdi, k.saved.Rsi, k.saved.Rdx
		regs.R10, regs.R8, regs.R9 = k.saved.R10, k.saved.R8, k.saved.R9
	case allocating:
		address := regs.Rax
		regs = k.saved
		regs.Orig_rax = math.MaxUint64
		if int64(address) < 0 && int64(address) > -4096 {
			regs.Rax = address // no memory: the call fails with this error
		} else {
			k.memory.scratch = address
			regs.Rip, regs.Rax = regs.Rip-syscallSize, k.saved.Orig_rax
		}
	}
	k.doing = nothing
	_ = unix.PtraceSetRegs(k.tid, &regs) // fails if it was killed meanwhile
	t.resume(k, 0)
}

// write writes data to the thread's slot and returns its address.
func (s *stop) write(data []byte) (uint64, error) {
	if s.used+uint64(len(data)) > slotSize {
		return 0, unix.E2BIG
	}
	address := s.task.memory.scratch + uint64(s.task.slot)*slotSize + s.used
	s.used += (uint64(len(data)) + 15) &^ 15
	return address, write(s.task.tid, address, data)
}

func (s *stop) writeString(text string) (uint64, error) { return s.write(append([]byte(text), 0)) }

// replace replaces a path argument.
func (s *stop) replace(argument int, text string) error {
	address, err := s.writeString(text)
	if err != nil {
		return err
	}
	*s.argument(argument), s.changed = address, true
	return nil
}

func (t *Tracer) translate(s *stop, paths []pathArgument) outcome {
	for _, p := range paths {
		follow := p.follow
		if p.flags != none && *s.argument(p.flags)&p.flag != 0 {
			follow = !follow
		}
		place, text, err := t.place(s, p.dir, p.path, follow)
		if err != nil {
			return failed(err)
		}
		if place.Outside == "" {
			continue
		}
		changes := p.changes || p.modeArg != none && *s.argument(p.modeArg)&unix.W_OK != 0
		alters := p.contents || p.modeArg != none
		if changes && (place.Access == ReadOnly || place.Access == Fixed && !alters) {
			return failed(unix.EROFS)
		}
		if place.Outside == text {
			continue
		}
		if err := s.replace(p.path, place.Outside); err != nil {
			return failed(err)
		}
	}
	return proceed
}

// place resolves a path argument, and returns the place and the original text. An empty place means
// that the call is left to the kernel.
func (t *Tracer) place(s *stop, dir, argument int, follow bool) (Place, string, error) {
	address := *s.argument(argument)
	if address == 0 {
		return Place{}, "", nil // the descriptor itself, or an invalid address
	}
	text, err := readString(s.task.tid, address, unix.PathMax)
	if err != nil || text == "" {
		return Place{}, "", err
	}
	from := int32(unix.AT_FDCWD)
	if dir != none {
		from = int32(*s.argument(dir))
	}
	place, err := t.resolve(s.task, from, text, follow)
	return place, text, err
}

func (t *Tracer) resolve(k *task, from int32, text string, follow bool) (Place, error) {
	if !strings.HasPrefix(text, "/") {
		base, ok := t.directory(k, from)
		if !ok {
			return Place{}, nil
		}
		// Not cleaned: ".." after a link depends on the link's target.
		text = base + "/" + text
	}
	return t.view.Resolve(text, follow, Process{Group: k.group, Thread: k.tid})
}

// directory returns the inside directory at which a relative path starts.
func (t *Tracer) directory(k *task, from int32) (string, bool) {
	link := "/proc/" + strconv.Itoa(k.tid) + "/cwd"
	if from != unix.AT_FDCWD {
		link = "/proc/" + strconv.Itoa(k.tid) + "/fd/" + strconv.Itoa(int(from))
	}
	outside, err := readlink(link)
	if err != nil || !strings.HasPrefix(outside, "/") {
		return "", false
	}
	return t.view.Inside(outside)
}

func (t *Tracer) open(k *task, s *stop) outcome {
	dir, argument := none, 0
	var flags uint64
	switch s.regs.Orig_rax {
	case unix.SYS_OPEN:
		flags = s.regs.Rsi
	case unix.SYS_CREAT:
		flags = unix.O_CREAT | unix.O_WRONLY | unix.O_TRUNC
	case unix.SYS_OPENAT:
		dir, argument, flags = 0, 1, s.regs.Rdx
	case unix.SYS_OPENAT2:
		dir, argument = 0, 1
		var err error
		if flags, err = readWord(k.tid, s.regs.Rdx); err != nil {
			return failed(err)
		}
		if how, err := readWord(k.tid, s.regs.Rdx+16); err == nil && how != 0 {
			return proceed // the call itself stays below a directory
		}
	}
	follow := flags&unix.O_NOFOLLOW == 0 && flags&(unix.O_CREAT|unix.O_EXCL) != unix.O_CREAT|unix.O_EXCL
	place, text, err := t.place(s, dir, argument, follow)
	if err != nil {
		return failed(err)
	}
	if place.Outside == "" {
		return proceed
	}
	if err := allowed(place, flags); err != nil {
		return failed(err)
	}
	if place.Outside == text {
		return proceed
	}
	if err := s.replace(argument, place.Outside); err != nil {
		return failed(err)
	}
	return proceed
}

func allowed(place Place, flags uint64) error {
	if place.Access == ReadWrite || flags&unix.O_PATH != 0 {
		return nil
	}
	if flags&unix.O_TMPFILE == unix.O_TMPFILE {
		return unix.EROFS
	}
	if flags&unix.O_CREAT != 0 {
		var st unix.Stat_t
		if unix.Lstat(place.Outside, &st) != nil {
			return unix.EROFS
		}
	}
	if place.Access == ReadOnly && flags&(unix.O_WRONLY|unix.O_RDWR|unix.O_TRUNC) != 0 {
		return unix.EROFS
	}
	return nil
}

func (t *Tracer) getcwd(k *task, s *stop) outcome {
	inside, ok := t.directory(k, unix.AT_FDCWD)
	if !ok {
		return proceed
	}
	if uint64(len(inside)+1) > s.regs.Rsi {
		return failed(unix.ERANGE)
	}
	if err := write(k.tid, s.regs.Rdi, append([]byte(inside), 0)); err != nil {
		return failed(unix.EFAULT)
	}
	return result(len(inside) + 1)
}

// readlink provides the result itself if a link of /proc points outside.
func (t *Tracer) readlink(k *task, s *stop) outcome {
	dir, argument := none, 0
	if s.regs.Orig_rax == unix.SYS_READLINKAT {
		dir, argument = 0, 1
	}
	place, text, err := t.place(s, dir, argument, false)
	if err != nil {
		return failed(err)
	}
	if rest, ok := strings.CutPrefix(place.Outside, "/proc/"); ok && rest != "self" && rest != "thread-self" {
		if target, err := readlink(place.Outside); err == nil {
			if inside, ok := t.view.Inside(target); ok {
				target = inside
			}
			target = target[:min(uint64(len(target)), *s.argument(argument + 2))]
			if err := write(k.tid, *s.argument(argument + 1), []byte(target)); err != nil {
				return failed(unix.EFAULT)
			}
			return result(len(target))
		}
	}
	if place.Outside == "" || place.Outside == text {
		return proceed
	}
	if err := s.replace(argument, place.Outside); err != nil {
		return failed(err)
	}
	return proceed
}

// Layout of struct sockaddr_un.
const (
	familySize = 2
	maxAddress = 108
)

// address translates the paths of local sockets, whose length is very limited.
func (t *Tracer) address(k *task, s *stop) outcome {
	pointer, length := 1, 2
	if s.regs.Orig_rax == unix.SYS_SENDTO {
		pointer, length = 4, 5
	}
	size := *s.argument(length)
	if *s.argument(pointer) == 0 || size <= familySize || size > familySize+maxAddress {
		return proceed
	}
	raw := make([]byte, size)
	if n, err := read(k.tid, *s.argument(pointer), raw); err != nil || n != len(raw) {
		return failed(unix.EFAULT)
	}
	if binary.NativeEndian.Uint16(raw) != unix.AF_UNIX || raw[familySize] == 0 {
		return proceed
	}
	text, _, _ := strings.Cut(string(raw[familySize:]), "\x00")
	place, err := t.resolve(k, unix.AT_FDCWD, text, s.regs.Orig_rax != unix.SYS_BIND)
	if err != nil {
		return failed(err)
	}
	if place.Outside == "" || place.Outside == text {
		return proceed
	}
	if s.regs.Orig_rax == unix.SYS_BIND && place.Access != ReadWrite {
		return failed(unix.EROFS)
	}
	if rest, ok := below(place.Outside, t.view.tree); ok && len(place.Outside) >= maxAddress {
		place.Outside = t.view.short + rest
	}
	if len(place.Outside) >= maxAddress {
		return failed(unix.ENAMETOOLONG)
	}
	raw = append(raw[:familySize:familySize], append([]byte(place.Outside), 0)...)
	where, err := s.write(raw)
	if err != nil {
		return failed(err)
	}
	*s.argument(pointer), *s.argument(length), s.changed = where, uint64(len(raw)), true
	return proceed
}

// exec translates the path of a program. For a script, it executes the interpreter instead: the
// kernel would look it up outside, and would pass it the outside path of the script.
func (t *Tracer) exec(k *task, s *stop) outcome {
	dir, argument, flags := none, 0, uint64(0)
	if s.regs.Orig_rax == unix.SYS_EXECVEAT {
		dir, argument, flags = 0, 1, s.regs.R8
	}
	place, text, err := t.place(s, dir, argument, flags&unix.AT_SYMLINK_NOFOLLOW == 0)
	if err != nil {
		return failed(err)
	}
	if place.Outside == "" {
		return proceed
	}
	program, arguments, err := t.view.Script(place.Outside, text, Process{Group: k.group, Thread: k.tid})
	if err != nil {
		return failed(err)
	}
	if arguments != nil {
		if err := s.prepend(argument+1, arguments); err != nil {
			return failed(err)
		}
	}
	if program == text {
		return proceed
	}
	if err := s.replace(argument, program); err != nil {
		return failed(err)
	}
	return proceed
}

// prepend replaces the first word of a vector by words.
func (s *stop) prepend(argument int, words []string) error {
	var vector []uint64
	for _, w := range words {
		address, err := s.writeString(w)
		if err != nil {
			return err
		}
		vector = append(vector, address)
	}
	if from := *s.argument(argument); from != 0 {
		for first := true; ; first = false {
			word, err := readWord(s.task.tid, from)
			if err != nil {
				return err
			}
			if word == 0 {
				break
			}
			if !first {
				vector = append(vector, word)
			}
			if len(vector) > slotSize/8 {
				return unix.E2BIG
			}
			from += 8
		}
	}
	var b bytes.Buffer
	_ = binary.Write(&b, binary.NativeEndian, append(vector, 0)) // a buffer takes it all
	address, err := s.write(b.Bytes())
	*s.argument(argument), s.changed = address, true
	return err
}
