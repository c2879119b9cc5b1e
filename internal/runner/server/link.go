package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/overwinter-dev/overwinter/internal/rawio"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/runner/beat"
	"github.com/overwinter-dev/overwinter/internal/runner/follow"
	"github.com/overwinter-dev/overwinter/internal/runner/journal"
	"github.com/overwinter-dev/overwinter/internal/runner/process"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// link is one worker's connection to one run.
type link struct {
	s    *Server
	conn *net.UnixConn
	// out receives messages for the worker: the stdout of attach if direct, else the connection.
	out    rawio.File
	direct bool
	run    string
	from   int64
	ctx    context.Context //nolint:containedctx // done when the link ends, together with its goroutines
	stop   context.CancelFunc
	flush  chan int64 // flushes that wait for the follower; a worker has one at a time
	// changed has room for one signal that the delivery may have changed. The sender of the message
	// reads the current state.
	changed chan struct{}
	// known receives the stored files, if the welcome has requested them.
	known chan []workspacefile.Known
	// surveys receives the answers to the surveys of a direct link; nil for a link without diffs.
	surveys chan *runner.Diff
	watch   *follow.Watch // of the workspace; nil for a link that receives no changes
	calls   bool          // the worker answers calls
	pace    pace
	tasks   sync.WaitGroup

	control   sync.Mutex // held while a message is written to the attach of a direct link
	surveying sync.Mutex // held while a diff is taken for a direct link

	mu     sync.Mutex // held while a message is written
	w      *bufio.Writer
	broken bool // a message was partly written, or the link has ended
	sent   time.Time

	once     sync.Once // starts the sending of frames
	partOnce sync.Once
}

// serveLink serves a link over a connection of attach. stdout is attach's stdout if it was passed
// on and is non-blocking; the link closes it.
func (s *Server) serveLink(conn *net.UnixConn, stdout *os.File, r *bufio.Reader, hello *runner.Hello) {
	var out rawio.File = conn
	if stdout != nil {
		defer stdout.Close()
		out = stdout
	}
	invalid := func(format string, args ...any) {
		answer(conn, &runner.Error{Code: runner.CodeInvalid, Message: fmt.Sprintf(format, args...)})
	}
	if !journal.ValidRun(hello.Run) || hello.From < 0 {
		invalid("there is no frame %d of run %q", hello.From, hello.Run)
		return
	}
	l := &link{
		s: s, conn: conn, out: out, direct: stdout != nil, run: hello.Run, from: hello.From,
		flush: make(chan int64, 16), changed: make(chan struct{}, 1), known: make(chan []workspacefile.Known, 1),
		surveys: make(chan *runner.Diff, 1), calls: hello.Calls, pace: pace{window: max(0, hello.Window), next: hello.From},
		w: s.takeWriter(rawio.NewWriter(out)),
	}
	defer s.keepWriter(l)
	if hello.Files != nil {
		l.watch = s.files.Watch(func(m runner.Message) error { return l.send(m, true) }, s.logger.With(slog.String("run_id", l.run)))
		if l.direct { // otherwise the link would be silent while git works
			l.watch.Refresh(l.survey)
		}
	}
	l.ctx, l.stop = context.WithCancel(context.Background())
	if l.direct && l.sendAttach(&runner.Direct{}) != nil {
		return
	}
	if err := s.replace(l, hello.Attempt); err != nil {
		l.end(err)
		return
	}
	defer l.tasks.Wait()
	defer l.close() // aborts a blocked write, for which Wait would wait
	defer s.release(l)
	defer l.stop()
	j, err := s.journalOf(l.run)
	if err != nil {
		l.end(&runner.Error{Code: runner.CodeJournal, Message: err.Error()})
		return
	}
	welcome := &runner.Welcome{Version: runner.ProtocolVersion, Delivery: delivery(j), LastFrame: -1, Steers: true, Window: hello.Window > 0, Seals: true}
	if j != nil {
		status := j.Status()
		welcome.LastFrame, welcome.Open = status.Frames-1, !status.Mark.Final()
	}
	if hello.Calls {
		welcome.Calls = s.waitingCalls(l.run)
	}
	s.mu.Lock()
	welcome.Agent = s.agent.Running()
	s.mu.Unlock()
	if hello.Files != nil {
		welcome.ListFiles = s.files.WantsList(*hello.Files)
	}
	if l.send(welcome, true) != nil {
		return
	}
	if j != nil {
		l.follow(j)
	}
	if hello.Files != nil {
		list := l.known
		if !welcome.ListFiles {
			list = nil
		}
		l.tasks.Go(func() { l.watch.Run(l.ctx, *hello.Files, list) })
	}
	l.tasks.Go(func() { l.transcripts(follow.NewTranscripts(hello.Known, s.versions)) })
	l.tasks.Go(l.alive)
	l.read(r)
	if l.direct {
		l.detach()
	}
}

// replace makes l the live link.
func (s *Server) replace(l *link, attempt int64) *runner.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if newest := s.attempts[l.run]; attempt > 0 && attempt < newest {
		return &runner.Error{Code: runner.CodeStale, Message: fmt.Sprintf("attempt %d has taken over from attempt %d", newest, attempt)}
	}
	s.attempts[l.run] = max(s.attempts[l.run], attempt)
	if old := s.link; old != nil {
		old.stop()
		s.tasks.Go(func() { old.end(&runner.Displaced{}) })
	}
	s.link = l
	s.repace()
	return nil
}

func (s *Server) release(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == l {
		s.link = nil
		s.repace()
	}
}

// takeWriter returns the buffer of an earlier link, or a new one. A new one for each link would make
// most of the garbage of a turn.
func (s *Server) takeWriter(out io.Writer) *bufio.Writer {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.spare
	if w == nil {
		return bufio.NewWriterSize(out, 64<<10)
	}
	s.spare = nil
	w.Reset(out)
	return w
}

// keepWriter takes the buffer from a link that has ended.
func (s *Server) keepWriter(l *link) {
	l.mu.Lock()
	w := l.w
	l.w, l.broken = nil, true // end may still be called
	l.mu.Unlock()
	w.Reset(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spare = w
}

// send writes one message. Unless now is set, it may wait in the buffer for the next one.
func (l *link) send(m runner.Message, now bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return context.Canceled
	}
	return l.write(m, now)
}

// write must be called with mu held.
func (l *link) write(m runner.Message, now bool) error {
	if l.broken {
		return net.ErrClosed
	}
	err := runner.WriteMessage(l.w, m)
	if err == nil && now {
		err = l.w.Flush()
	}
	if err != nil {
		l.broken = true
		l.stop()
		l.close()
		return err
	}
	l.sent = time.Now()
	return nil
}

// end sends a last message and closes the connection.
func (l *link) end(m runner.Message) {
	l.partOnce.Do(func() {
		l.stop()
		_ = l.out.SetWriteDeadline(time.Now().Add(runner.PartingBudget)) // also aborts a blocked write
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.write(m, true) == nil && l.direct {
			_ = l.sendAttach(m) // its exit code depends on the message
		}
		l.close()
	})
}

// close closes the connection and aborts writes to the worker.
func (l *link) close() {
	_ = errors.Join(l.out.Close(), l.conn.Close()) // either may already be closed
}

// sendAttach sends a message to the attach of a direct link. If attach does not read, the link
// ends.
func (l *link) sendAttach(m runner.Message) error {
	l.control.Lock()
	defer l.control.Unlock()
	_ = l.conn.SetWriteDeadline(time.Now().Add(runner.PartingBudget))
	w := bufio.NewWriter(l.conn)
	return errors.Join(runner.WriteMessage(w, m), w.Flush())
}

// detach ends a direct link after the message in progress, and notifies its attach that all written
// messages are complete.
func (l *link) detach() {
	l.partOnce.Do(func() {
		l.stop()
		_ = l.out.SetWriteDeadline(time.Now().Add(runner.PartingBudget))
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.broken && l.w.Flush() == nil { // a part of a message may have been written
			_ = l.sendAttach(&runner.Detached{})
		}
		l.broken = true
		l.close()
	})
}

// read executes the worker's messages until the link ends.
func (l *link) read(r *bufio.Reader) {
	for {
		m, err := runner.ReadMessage(r)
		if err != nil {
			if !errors.Is(err, io.EOF) && l.ctx.Err() == nil {
				l.end(&runner.Error{Code: runner.CodeInvalid, Message: err.Error()})
			}
			return
		}
		if _, detach := m.(*runner.Detach); detach && l.direct {
			return
		}
		if l.ctx.Err() != nil { // ignore messages of a displaced link, whose last message is being sent
			continue
		}
		if err := l.handle(m); err != nil {
			refusal, ok := errors.AsType[*runner.Error](err)
			if !ok {
				refusal = &runner.Error{Code: runner.CodeInvalid, Message: err.Error()}
			}
			l.end(refusal)
			return
		}
	}
}

func (l *link) handle(m runner.Message) error {
	switch m := m.(type) {
	case *runner.Start:
		// Stopping an agent takes seconds, during which interrupts must be handled.
		l.s.mu.Lock()
		seals := l.s.seals
		l.s.mu.Unlock()
		l.tasks.Go(func() {
			if l.watch != nil {
				l.watch.AwaitSurvey(l.ctx)
			}
			if err := l.s.begin(l.run, m, seals, l.delivering); err != nil {
				l.s.logger.Error("start failed", slog.String("run_id", l.run), slog.Any("error", err))
				refusal, ok := errors.AsType[*runner.Error](err)
				if !ok {
					refusal = &runner.Error{Code: runner.CodeJournal, Message: err.Error()}
				}
				l.end(refusal)
			}
		})
	case *runner.Input:
		// If the agent has exited, its exit frame reports that.
		if err := l.s.input(l.run, m.Data); errors.Is(err, process.ErrStuck) {
			return err
		}
	case *runner.Steer:
		l.tasks.Go(func() { // waits for a prompt that is being delivered
			if err := l.s.steer(l.run, m); errors.Is(err, process.ErrStuck) {
				l.end(&runner.Error{Code: runner.CodeInvalid, Message: err.Error()})
			}
		})
	case *runner.Interrupt:
		_, err := l.s.interrupt(l.run, *m)
		return err
	case *runner.CallAnswer:
		return l.s.answerCall(l.run, m)
	case *runner.Taken:
		l.s.taken(l, m)
	case *runner.Settle:
		l.s.settle(l.run)
	case *runner.FilesKnown:
		select {
		case l.known <- m.Files:
		default:
			return errors.New("the files were not asked for")
		}
	case *runner.Diff:
		return l.answered(m)
	case *runner.NoDiff:
		return l.answered(nil)
	case *runner.Flush:
		select {
		case l.flush <- m.ID:
		case <-l.ctx.Done():
		}
	default:
		return fmt.Errorf("a link takes no %T", m)
	}
	return nil
}

// answered handles the answer to a survey.
func (l *link) answered(d *runner.Diff) error {
	if l.direct {
		select {
		case l.surveys <- d:
			return nil
		default:
		}
	}
	return errors.New("no diff was asked for")
}

// delivering reports the state of the delivery, and starts to send the frames. It does not wait for
// the worker.
func (l *link) delivering(j *journal.Journal) {
	l.follow(j)
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// follow sends the journal's frames, from the requested one on, and the delivery whenever it
// changes.
func (l *link) follow(j *journal.Journal) {
	l.once.Do(func() {
		l.tasks.Go(func() { l.frames(j) })
		l.tasks.Go(func() { l.deliveries(j) })
	})
}

func (l *link) deliveries(j *journal.Journal) {
	for {
		select {
		case <-l.changed:
		case <-l.ctx.Done():
			return
		}
		if l.send(&runner.DeliveryChanged{Delivery: delivery(j)}, true) != nil {
			return
		}
	}
}

func (l *link) frames(j *journal.Journal) {
	r, err := j.Read(l.from)
	for err == nil {
		var f runner.Frame
		var more bool
		if f, more, err = r.Next(l.ctx); err == nil {
			if f.Stream == runner.Call && !l.calls {
				f.Stream, f.Data = runner.Stderr, []byte(callUnknown)
				l.s.answerCalls(refusal(callUnknown), func(c *call) bool { return c.run == l.run && c.frame == f.No })
			}
			err = l.send(&f, !more)
		}
	}
	if l.ctx.Err() == nil && !errors.Is(err, io.EOF) {
		l.end(&runner.Error{Code: runner.CodeJournal, Message: err.Error()})
	}
}

// transcripts sends new data of the agent's files, and answers flushes.
func (l *link) transcripts(f *follow.Transcripts) {
	t := time.NewTimer(beat.Next(follow.PollInterval))
	defer t.Stop()
	for {
		id, flushed := int64(0), false
		select {
		case <-l.ctx.Done():
			return
		case <-t.C:
			t.Reset(beat.Next(follow.PollInterval))
		case id = <-l.flush:
			flushed = true
		}
		l.s.mu.Lock()
		patterns := l.s.patterns
		l.s.mu.Unlock()
		err := f.Poll(patterns, flushed, func(s *runner.Segment) error { return l.send(s, true) })
		if err == nil && flushed && l.watch != nil {
			var survey *runner.Survey
			if survey, err = l.watch.Flush(l.ctx); err == nil && survey != nil {
				err = l.survey(survey)
			}
		}
		if err == nil && flushed {
			err = l.send(&runner.Flushed{ID: id}, true)
		}
		if err != nil {
			return
		}
	}
}

// survey makes attach take the diff, and sends it to the worker if the link is direct; otherwise
// attach sends it.
func (l *link) survey(s *runner.Survey) error {
	if !l.direct {
		return l.send(s, true)
	}
	l.surveying.Lock()
	defer l.surveying.Unlock()
	if err := l.sendAttach(s); err != nil {
		l.close()
		return err
	}
	select {
	case d := <-l.surveys:
		if d == nil {
			return nil
		}
		return l.send(d, true)
	case <-l.ctx.Done():
		return l.ctx.Err()
	}
}

// alive keeps the link from being silent. It wakes only when the link has been silent for long
// enough, or would have been if nothing had been sent since the last check.
func (l *link) alive() {
	const silence = runner.AliveInterval - runner.AliveInterval/5
	t := time.NewTimer(silence)
	defer t.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-t.C:
		}
		l.mu.Lock()
		left := silence - time.Since(l.sent)
		l.mu.Unlock()
		if left <= 0 {
			if l.send(&runner.Alive{}, true) != nil {
				return
			}
			left = silence
		}
		t.Reset(left)
	}
}
