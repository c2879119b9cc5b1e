package modalsandbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	modal "github.com/modal-labs/modal-client/go"

	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
)

// moveTimeout bounds the command that moves a written file to its path.
const moveTimeout = 30 * time.Second

// Exec implements driver.Driver.
func (d *Driver) Exec(ctx context.Context, id string, r driver.ExecRequest) (driver.Exec, error) {
	sb, err := d.handle(ctx, id)
	if err != nil {
		return nil, fault("exec", id, err)
	}
	p, err := sb.Exec(ctx, r.Argv, &modal.SandboxExecParams{Workdir: r.Dir, Env: r.Env, Timeout: r.Timeout})
	if err != nil {
		return nil, insideFault("exec", id, err)
	}
	return &process{id: id, p: p}, nil
}

// process is a driver.Exec. The streams of the SDK already satisfy the contract: demand-driven,
// resumed by offset, unblocked by Close.
type process struct {
	id string
	p  *modal.ContainerProcess
}

func (p *process) Stdin() io.WriteCloser { return stdin{p} }
func (p *process) Stdout() io.ReadCloser { return output{p, p.p.Stdout} }
func (p *process) Stderr() io.ReadCloser { return output{p, p.p.Stderr} }

func (p *process) Wait(ctx context.Context) (int, error) {
	code, err := p.p.Wait(ctx, nil)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return code, insideFault("wait", p.id, err)
}

type stdin struct{ p *process }

func (s stdin) Write(b []byte) (int, error) {
	n, err := s.p.p.Stdin.Write(b)
	return n, insideFault("write input", s.p.id, err)
}

func (s stdin) Close() error { return insideFault("close input", s.p.id, s.p.p.Stdin.Close()) }

type output struct {
	p *process
	io.ReadCloser
}

func (o output) Read(b []byte) (int, error) {
	n, err := o.ReadCloser.Read(b)
	if errors.Is(err, io.EOF) {
		return n, io.EOF
	}
	return n, insideFault("read output", o.p.id, err)
}

// WriteFile implements driver.Driver. Modal's file calls accept no mode, write in place, and cannot
// replace a running program. So the content is written to a new file in the same directory, which
// is then moved.
func (d *Driver) WriteFile(ctx context.Context, id, path string, data []byte, mode fs.FileMode) error {
	const op = "write file"
	sb, err := d.handle(ctx, id)
	if err != nil {
		return fault(op, id, err)
	}
	temporary := path + "." + rand.Text() + ".tmp"
	if err := sb.Filesystem.WriteBytes(ctx, data, temporary, nil); err != nil {
		return insideFault(op, id, err)
	}
	p, err := sb.Exec(ctx, []string{
		"sh", "-c", `chmod "$1" "$2" && mv -fT "$2" "$3" || { code=$?; rm -f "$2"; exit $code; }`,
		"sh", fmt.Sprintf("%o", mode.Perm()), temporary, path,
	}, &modal.SandboxExecParams{Stdout: modal.Ignore, Timeout: moveTimeout})
	if err != nil {
		return insideFault(op, id, err)
	}
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	code, err := p.Wait(ctx, nil)
	if err != nil {
		return insideFault(op, id, err)
	}
	if code != 0 {
		text, _ := io.ReadAll(io.LimitReader(p.Stderr, 1024)) // only for the error message
		return driver.Errorf(driver.Invalid, op, id, "%s: %s", path, bytes.TrimSpace(text))
	}
	return nil
}

// ReadFile implements driver.Driver.
func (d *Driver) ReadFile(ctx context.Context, id, path string) ([]byte, error) {
	sb, err := d.handle(ctx, id)
	if err != nil {
		return nil, fault("read file", id, err)
	}
	data, err := sb.Filesystem.ReadBytes(ctx, path, nil)
	if err != nil {
		return nil, insideFault("read file", id, err)
	}
	return data, nil
}
