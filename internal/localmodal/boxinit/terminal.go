package boxinit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/localmodal/wire"
)

// endOfFile is the character that a terminal's line discipline interprets as the end of input.
const endOfFile = 0x04

// terminal is a pseudo-terminal of the sandbox's own devpts, so that programs
// inside can resolve its name.
type terminal struct {
	master, slave *os.File
}

func (p *initProcess) openTerminal(rows, cols int) (*terminal, error) {
	if rows <= 0 {
		rows = 24
	}
	if cols <= 0 {
		cols = 80
	}
	master, err := p.openPTS("ptmx")
	if err != nil {
		return nil, fmt.Errorf("open terminal: %w", err)
	}
	fd := int(master.Fd())
	number := 0
	err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	if err == nil {
		number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(rows), Col: uint16(cols)})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set up terminal: %w", err), master.Close())
	}
	slave, err := p.openPTS(strconv.Itoa(number))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open terminal: %w", err), master.Close())
	}
	return &terminal{master: master, slave: slave}, nil
}

// openPTS opens a file of the devpts that was mounted at the start.
func (p *initProcess) openPTS(name string) (*os.File, error) {
	if p.directory != nil {
		if name == "ptmx" {
			return os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
		}
		return os.OpenFile("/dev/pts/"+name, os.O_RDWR|syscall.O_NOCTTY, 0)
	}
	fd, err := unix.Openat(p.terminals, name, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func (t *terminal) closeSlave()  { wire.CloseAll([]*os.File{t.slave}) }
func (t *terminal) closeMaster() { wire.CloseAll([]*os.File{t.master}) }

// pump copies between the terminal and duplicates of the process's streams until the last process
// has closed the terminal.
func (t *terminal) pump(stdin, stdout *os.File) error {
	in, err := duplicate(stdin)
	if err != nil {
		return err
	}
	out, err := duplicate(stdout)
	if err != nil {
		return errors.Join(err, in.Close())
	}
	go func() {
		defer wire.CloseAll([]*os.File{in})
		if _, err := io.Copy(t.master, in); err == nil {
			_, _ = t.master.Write([]byte{endOfFile}) // there may be no reader any more
		}
	}()
	go func() {
		defer wire.CloseAll([]*os.File{out, t.master})
		_, _ = io.Copy(out, t.master) // ends with EIO, a terminal's end of file
	}()
	return nil
}

func duplicate(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate %s: %w", f.Name(), err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
