package command

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/overwinter-dev/overwinter/internal/durable"
	"github.com/overwinter-dev/overwinter/internal/runner"
)

// Put writes the files on stdin. Each replaces an existing one atomically, and is on disk when the
// answer is printed.
func Put(stdin io.Reader, stdout io.Writer) error {
	r := bufio.NewReaderSize(stdin, 64<<10)
	var done runner.Written
	for {
		m, err := runner.ReadMessage(r)
		if err != nil {
			return fmt.Errorf("read files: %w", noEOF(err))
		}
		switch m := m.(type) {
		case *runner.File:
			if err := putFile(r, m); err != nil {
				return fmt.Errorf("put %s: %w", m.Path, err)
			}
			done.Files++
			done.Bytes += m.Size
		case *runner.End:
			if m.Files != done.Files {
				return fmt.Errorf("%d files were announced and %d came", m.Files, done.Files)
			}
			return reply(stdout, done)
		default:
			return fmt.Errorf("put takes no %T", m)
		}
	}
}

func putFile(r io.Reader, file *runner.File) error {
	if !filepath.IsAbs(file.Path) || file.Size < 0 {
		return errors.New("the path is not absolute, or the size negative")
	}
	dir := filepath.Dir(file.Path)
	made, err := makeDirs(dir)
	if err != nil {
		return err
	}
	if err := durable.Replace(file.Path, func(w io.Writer) error { return copyData(w, r, file.Size) }); err != nil {
		return err
	}
	for _, d := range made {
		if err := durable.Sync(d); err != nil {
			return err
		}
	}
	return nil
}

func copyData(w io.Writer, r io.Reader, size int64) error {
	for size > 0 {
		m, err := runner.ReadMessage(r)
		if err != nil {
			return noEOF(err)
		}
		d, ok := m.(*runner.Data)
		if !ok || len(d.Bytes) == 0 || int64(len(d.Bytes)) > size {
			return errors.New("its bytes do not match its size")
		}
		if _, err := w.Write(d.Bytes); err != nil {
			return err
		}
		size -= int64(len(d.Bytes))
	}
	return nil
}

// makeDirs creates a directory with its parents and returns the directories in which it created an
// entry.
func makeDirs(dir string) ([]string, error) {
	var changed []string
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(d); err == nil || d == filepath.Dir(d) {
			break
		}
		changed = append(changed, filepath.Dir(d))
	}
	return changed, os.MkdirAll(dir, 0o700)
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
