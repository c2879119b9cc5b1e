package devstack

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/durable"
	"github.com/overwinter-dev/overwinter/internal/privatedir"
)

// dataDir is the stack's data directory, locked by this process.
type dataDir struct {
	path string
	lock *os.File
}

// openDataDir creates the directory if it is missing and locks it for this process. Its errors are
// messages for the user.
func openDataDir(path string) (_ *dataDir, err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("find data directory: %w", err)
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, fmt.Errorf("data directory %s cannot be made: %w", path, reason(err))
		}
	case errors.Is(err, syscall.ENOTDIR), err == nil && !info.IsDir():
		return nil, fmt.Errorf("data directory %s is not a directory: choose another with --data-dir", path)
	case err != nil:
		return nil, fmt.Errorf("data directory %s cannot be read: %w", path, reason(err))
	}
	if err := privatedir.Make(path, dataDirMode()); err != nil {
		if refused, ok := errors.AsType[*fs.PathError](err); ok {
			return nil, fmt.Errorf("data directory %s is not writable: %w", path, reason(refused))
		}
		return nil, fmt.Errorf("data directory: %w", err)
	}

	d := &dataDir{path: path}
	if err := d.takeLock(); err != nil {
		return nil, err
	}
	for _, sub := range []string{"logs", "run", "temporal", "modal"} {
		if err := privatedir.Make(d.join(sub), 0o700); err != nil {
			return nil, errors.Join(fmt.Errorf("data directory %s is broken: %w", path, err), d.close())
		}
	}
	return d, nil
}

// dataDirMode is private, except that other users can traverse root's: Postgres refuses to run as
// root, and its directory is below. Everything else below is private.
func dataDirMode() fs.FileMode {
	if os.Geteuid() == 0 {
		return 0o711
	}
	return 0o700
}

// takeLock makes this process the exclusive user of the directory. The kernel releases the lock
// when the process ends.
func (d *dataDir) takeLock() error {
	path := d.join("lock")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("data directory %s is not writable: %w", d.path, reason(err))
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		holder, _ := os.ReadFile(path) // only for the error message
		return errors.Join(fmt.Errorf("data directory %s is in use by another `overwinter dev` (process %s): stop that one, or choose another with --data-dir",
			d.path, strings.TrimSpace(string(holder))), file.Close())
	}
	if err != nil {
		return errors.Join(fmt.Errorf("data directory %s cannot be locked: %w", d.path, err), file.Close())
	}
	if err := file.Truncate(0); err == nil {
		_, err = fmt.Fprintf(file, "%d\n", os.Getpid())
		if err != nil {
			return errors.Join(fmt.Errorf("data directory %s is not writable: %w", d.path, reason(err)), file.Close())
		}
	}
	d.lock = file
	return nil
}

// close unlocks explicitly: closing the file alone would leave the lock with a process that is
// being started, until it has executed its program.
func (d *dataDir) close() error {
	return errors.Join(unix.Flock(int(d.lock.Fd()), unix.LOCK_UN), d.lock.Close())
}

func (d *dataDir) join(elem ...string) string {
	return filepath.Join(append([]string{d.path}, elem...)...)
}

// secretKey returns the key stored in the directory, which the first call generates.
func (d *dataDir) secretKey() (string, error) {
	const bytes = 32
	key, err := d.secret("secret.key", func() string {
		key := make([]byte, bytes)
		_, _ = rand.Read(key) // never fails
		return base64.StdEncoding.EncodeToString(key)
	})
	if err != nil {
		return "", err
	}
	if decoded, err := base64.StdEncoding.DecodeString(key); err != nil || len(decoded) != bytes {
		return "", fmt.Errorf("%s does not hold 32 bytes in base64: restore it from a backup, or delete it and lose the secrets that it encrypts", d.join("secret.key"))
	}
	return key, nil
}

// password returns the password stored in a file, which the first call generates.
func (d *dataDir) password(file string) (string, error) {
	return d.secret(file, func() string {
		password := make([]byte, 24)
		_, _ = rand.Read(password) // never fails
		return hex.EncodeToString(password)
	})
}

// secret returns the content of a file that only this user can read, and creates it if it is
// missing.
func (d *dataDir) secret(name string, generate func() string) (string, error) {
	content, err := os.ReadFile(d.join(name))
	if err == nil {
		return strings.TrimSpace(string(content)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read secret: %w", err)
	}
	value := generate()
	return value, d.write(name, value+"\n")
}

// write replaces a file atomically.
func (d *dataDir) write(name, content string) error {
	if err := durable.WriteFile(d.join(name), []byte(content)); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// rememberedPorts are the ports that no flag sets and that should stay the same across runs.
type rememberedPorts struct {
	Postgres   int `json:"postgres,omitempty"`
	LocalModal int `json:"localModal,omitempty"`
	Worker     int `json:"worker,omitempty"` // of its health and metrics
}

func (d *dataDir) readPorts() rememberedPorts {
	var ports rememberedPorts
	if content, err := os.ReadFile(d.join("ports.json")); err == nil {
		_ = json.Unmarshal(content, &ports) // unreadable ports are chosen again
	}
	return ports
}

func (d *dataDir) writePorts(ports rememberedPorts) error {
	content, err := json.Marshal(ports)
	if err != nil {
		return fmt.Errorf("encode ports: %w", err)
	}
	return d.write("ports.json", string(content)+"\n")
}

// reason strips the path from a file error, for messages that already name it.
func reason(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}
