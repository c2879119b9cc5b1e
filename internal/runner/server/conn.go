package server

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/runner"
)

// helloBudget bounds how long a connection may take to send its first message.
const helloBudget = 10 * time.Second

// enter registers a connection, which leave closes, and reports whether to serve it.
func (s *Server) enter(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		_ = conn.Close()
		return false
	}
	s.conns[conn] = struct{}{}
	return true
}

func (s *Server) leave(conn net.Conn) {
	s.mu.Lock()
	delete(s.conns, conn)
	s.mu.Unlock()
	_ = conn.Close()
}

func (s *Server) serveConn(conn *net.UnixConn) {
	if !s.enter(conn) {
		return
	}
	defer s.leave(conn)
	if err := samePeer(conn); err != nil {
		s.logger.Warn("connection refused", slog.Any("error", err))
		return
	}
	_ = conn.SetReadDeadline(time.Now().Add(helloBudget))
	first := &opening{conn: conn}
	defer first.close()
	r := bufio.NewReader(first) // a long message is read without it
	m, err := runner.ReadMessage(r)
	if err != nil {
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	switch m := m.(type) {
	case *runner.Hello:
		if s.refuse(conn, m.Token, m.Version) {
			return
		}
		s.serveLink(conn, first.take(), r, m)
	case *runner.Command:
		if s.refuse(conn, m.Token, m.Version) {
			return
		}
		s.serveCommand(conn, m)
	default:
		answer(conn, &runner.Error{Code: runner.CodeInvalid, Message: fmt.Sprintf("a connection cannot begin with %T", m)})
	}
}

// samePeer accepts the runner's own user and root.
func samePeer(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if credErr != nil {
		return fmt.Errorf("peer credentials: %w", credErr)
	}
	if cred.Uid != 0 && int(cred.Uid) != os.Getuid() {
		return fmt.Errorf("user %d is not the runner's", cred.Uid)
	}
	return nil
}

func (s *Server) refuse(conn net.Conn, token string, version int) bool {
	switch {
	case !runner.TokenMatches(token, s.cfg.TokenHash):
		s.logger.Warn("connection with a wrong token")
		answer(conn, &runner.Error{Code: runner.CodeToken, Message: "the token is not this sandbox's"})
	case version != runner.ProtocolVersion:
		answer(conn, &runner.Error{
			Code:    runner.CodeVersion,
			Message: fmt.Sprintf("protocol version %d is not %d", version, runner.ProtocolVersion),
		})
	default:
		return false
	}
	return true
}

// answer writes a last message. The peer may have disconnected.
func answer(conn net.Conn, m runner.Message) {
	_ = conn.SetWriteDeadline(time.Now().Add(helloBudget))
	w := bufio.NewWriter(conn)
	_ = errors.Join(runner.WriteMessage(w, m), w.Flush())
}

func (s *Server) serveCommand(conn net.Conn, c *runner.Command) {
	var result any
	var err error
	switch {
	case c.Ping:
		result = s.ping(c.Found)
	case c.Abort != nil:
		var reached bool
		reached, err = s.interrupt(c.Abort.Run, c.Abort.Interrupt)
		result = runner.Abort{Reached: reached}
	case c.Seal != nil:
		w := bufio.NewWriterSize(conn, 64<<10)
		quiet := func() error { return nil }
		if c.Quiet {
			quiet = func() error { return errors.Join(runner.WriteMessage(w, &runner.Quiet{}), w.Flush()) }
		}
		result, err = s.seal(c.Seal, quiet, c.Quiet, func(m runner.Message) error { return runner.WriteMessage(w, m) })
		if ferr := w.Flush(); err == nil {
			err = ferr
		}
		if err != nil {
			s.logger.Error("seal failed", slog.Any("error", err))
			if _, refused := errors.AsType[*runner.Error](err); !refused {
				err = &runner.Error{Code: runner.CodeIncomplete, Message: err.Error()}
			}
		}
	default:
		err = errors.New("the command is empty")
	}
	if err != nil {
		refusal, ok := errors.AsType[*runner.Error](err)
		if !ok {
			refusal = &runner.Error{Code: runner.CodeInvalid, Message: err.Error()}
		}
		answer(conn, refusal)
		return
	}
	data, err := json.Marshal(result)
	if err != nil {
		panic(err) // our own types can always be encoded
	}
	answer(conn, &runner.Result{Data: data})
}

// ping describes the runner. With found, it waits until the runner has looked through the workspace.
func (s *Server) ping(found bool) runner.Ping {
	digest := ""
	if found {
		digest = s.files.Found()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.agent != nil || s.open != nil || s.seals > 0 { // an agent may have changed it
		digest = ""
	}
	p := runner.Ping{Version: runner.ProtocolVersion, PID: os.Getpid(), Agent: s.agent.Running(), Sealed: s.sealed, Found: digest}
	if s.link != nil && s.link.watch != nil {
		p.Watch = s.link.watch.Mode()
	}
	if p.Agent {
		p.AgentPID = s.agent.PID()
	}
	p.Run = s.unsealedRun()
	return p
}

// unsealedRun returns the open run; "" if there is none, or the sandbox was sealed since it began. It must be
// called with mu held.
func (s *Server) unsealedRun() string {
	if s.open == nil || s.open.Status().Mark.Final() {
		return ""
	}
	return s.open.Run()
}
