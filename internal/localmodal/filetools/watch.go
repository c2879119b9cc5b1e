package filetools

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const watched = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_DELETE_SELF | unix.IN_ACCESS

// event is a line of Watch's output.
type event struct {
	Type  string   `json:"event_type"`
	Paths []string `json:"paths"`
}

// watcher converts inotify's records to events.
type watcher struct {
	inotify   *os.File
	paths     map[int32]string
	recursive bool
	filter    []string
	out       *json.Encoder
}

// watch reports changes below args.Path until the timeout or until stdin ends.
func watch(args arguments, stdin io.Reader, stdout io.Writer) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("start watching: %w", err)
	}
	w := &watcher{
		inotify: os.NewFile(uintptr(fd), "inotify"), paths: map[int32]string{},
		recursive: args.Recursive, filter: args.Filter, out: json.NewEncoder(stdout),
	}
	if err := w.addTree(fd, args.Path); err != nil {
		return errors.Join(err, w.inotify.Close())
	}
	// Closing the descriptor ends the read below, for both reasons to stop.
	end := func() { _ = w.inotify.Close() }
	if args.TimeoutSecs != nil {
		defer time.AfterFunc(time.Duration(*args.TimeoutSecs)*time.Second, end).Stop()
	}
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		end()
	}()
	err = w.follow(fd)
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

func (w *watcher) add(fd int, path string) error {
	wd, err := unix.InotifyAddWatch(fd, path, watched)
	if err != nil {
		return &fs.PathError{Op: "watch", Path: path, Err: err}
	}
	w.paths[int32(wd)] = path
	return nil
}

func (w *watcher) addTree(fd int, path string) error {
	if err := w.add(fd, path); err != nil {
		return err
	}
	if !w.recursive {
		return nil
	}
	return filepath.WalkDir(path, func(p string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed before it was watched
		}
		if err != nil || !entry.IsDir() || p == path {
			return err
		}
		if err := w.add(fd, p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

func (w *watcher) follow(fd int) error {
	buf := make([]byte, 64<<10)
	for {
		n, err := w.inotify.Read(buf)
		if err != nil {
			return err
		}
		for records := buf[:n]; len(records) >= unix.SizeofInotifyEvent; {
			wd := int32(binary.NativeEndian.Uint32(records[0:]))
			mask := binary.NativeEndian.Uint32(records[4:])
			size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(records[12:]))
			name := string(bytes.TrimRight(records[unix.SizeofInotifyEvent:size], "\x00"))
			records = records[size:]
			if err := w.emit(fd, wd, mask, name); err != nil {
				return err
			}
		}
	}
}

func (w *watcher) emit(fd int, wd int32, mask uint32, name string) error {
	if mask&unix.IN_IGNORED != 0 { // the watched file was removed, and the watch with it
		delete(w.paths, wd)
		return nil
	}
	path := w.paths[wd]
	if name != "" {
		path = filepath.Join(path, name)
	}
	if w.recursive && mask&unix.IN_ISDIR != 0 && mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0 {
		if err := w.add(fd, path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	kind := eventType(mask)
	if w.filter != nil && !slices.Contains(w.filter, kind) {
		return nil
	}
	return w.out.Encode(event{Type: kind, Paths: []string{path}})
}

func eventType(mask uint32) string {
	switch {
	case mask&unix.IN_CREATE != 0:
		return "Create"
	case mask&unix.IN_MODIFY != 0:
		return "Modify"
	case mask&(unix.IN_DELETE|unix.IN_DELETE_SELF) != 0:
		return "Remove"
	case mask&unix.IN_MOVED_FROM != 0:
		return "RenameFrom"
	case mask&unix.IN_MOVED_TO != 0:
		return "RenameTo"
	case mask&unix.IN_ACCESS != 0:
		return "Access"
	default:
		return "Unknown"
	}
}
