package stream_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"weir"
	"weir/internal/stream"
)

// TestScripts runs the scripts in testdata. Each block of a script consists of commands, a line of
// dashes, and the output of the commands. Run with -rewrite to update the output. Times count from
// the creation of the stream. The grace is the time in which a gap can still be filled. Below the
// low mark, every sequence was evicted or closed. Below the final mark, every sequence was stored,
// evicted or closed.
//
//	new [max-bytes=N] [retention=D] [grace=D]   create a stream without batches, at time 0
//	clock D | clock +D | clock -D               set or move the clock
//	publish [seq=N] [next=N] [key=K] [size=N]   decide and, if admitted, store; next=N is like seq=N, but refused if it would open a gap
//	decide [seq=N] [next=N] [key=K] [size=N]    only decide; without size, decide as if the body had not been read
//	close                                       close the stream; "publish ends=yes" closes it together with a batch
//	publish by=P/E/N [order=O]                  publish as number N of epoch E of producer P, with O as its Stream-Seq
//	due                                         close the gaps whose grace has ended
//	hold N                                      a request for N begins to be received, which keeps N open
//	release N                                   the request for N ends
//	resume                                      the store accepts writes again, after a time in which it refused them
//	evict                                       evict batches that exceed the age or size limit
//	show                                        print the cursor, the low and final marks, and the size
//	lookup N...                                 print whether these sequences can be read
//	subscribe NAME head|oldest|N                start a subscription; a number N means after N
//	read NAME                                   print what the subscription receives until it waits
//	trim                                        make the low mark durable, with a checkpoint
//	restart                                     crash and restore from the log
//	lose N                                      lose the payload of N, but not its header; use before a restart
//	forget N                                    lose the whole entry of N; use before a mend
//	mend N                                      repair a log that may have lost up to N whole entries, as forget loses them; use before a restart
//	given N                                     add batch N to the log without publishing it; use before a restart
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			s := &script{t: t}
			datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
				var answer strings.Builder
				for _, line := range append([]string{d.FullCmd()}, strings.Split(d.Input, "\n")...) {
					if line = strings.TrimSpace(line); line != "" {
						answer.WriteString(s.run(d, line))
					}
				}
				return answer.String()
			})
		})
	}
}

// script is a script in progress.
type script struct {
	t     *testing.T
	rules stream.Rules
	now   weir.Time
	state *stream.State
	log   log
	next  map[string]weir.Seq
	held  held
}

// run executes one command and returns its output: nothing, or complete lines.
func (s *script) run(d *datadriven.TestData, line string) string {
	word := strings.Fields(line)
	args := func(i int) string {
		if i >= len(word) {
			d.Fatalf(s.t, "%q: missing argument", line)
		}
		return word[i]
	}
	switch word[0] {
	case "new":
		return s.create(word[1:])
	case "clock":
		return s.clock(args(1))
	case "publish":
		return s.publish(word[1:], true)
	case "decide":
		return s.publish(word[1:], false)
	case "close":
		return s.close()
	case "due":
		return s.due()
	case "hold":
		s.held = append(s.held, weir.Seq(s.number(args(1))))
		return ""
	case "release":
		s.held.release(weir.Seq(s.number(args(1))))
		return ""
	case "resume":
		s.state.Pause(0, stream.Afresh, s.now)
		return ""
	case "evict":
		n := s.state.Evict(s.now, s.log.headers)
		return fmt.Sprintf("evicted %d, low %d, bytes %d, charge %d\n", n, s.state.Low(), s.state.Bytes(), stream.Charge(s.state))
	case "show":
		return s.show()
	case "lookup":
		return s.lookup(word[1:])
	case "subscribe":
		return s.subscribe(args(1), args(2))
	case "read":
		return s.read(args(1))
	case "trim":
		s.log.trim(s.state.Low(), stream.Encoded(s.state))
		return ""
	case "restart":
		return s.restart()
	case "lose":
		s.log.spoil(weir.Seq(s.number(args(1))), true)
		return ""
	case "forget":
		s.log.spoil(weir.Seq(s.number(args(1))), false)
		return ""
	case "mend":
		return s.mend(args(1))
	case "given":
		s.log.append(s.t, stream.Header{Seq: weir.Seq(s.number(args(1))), Time: s.now, Size: 10})
		return ""
	}
	d.Fatalf(s.t, "unknown command %q", line)
	return ""
}

func (s *script) create(words []string) string {
	s.rules = stream.Rules{MaxBytes: 1000, Retention: time.Minute, GapGrace: 2 * time.Second, Keys: 3}
	for name, value := range s.options(words) {
		switch name {
		case "max-bytes":
			s.rules.MaxBytes = int64(s.number(value))
		case "retention":
			s.rules.Retention = s.duration(value)
		case "grace":
			s.rules.GapGrace = s.duration(value)
		default:
			s.t.Fatalf("new has no option %q", name)
		}
	}
	*s = script{t: s.t, rules: s.rules, state: stream.New(s.rules, 0), next: map[string]weir.Seq{}}
	return ""
}

func (s *script) clock(word string) string {
	before := s.now
	defer func() { s.held.elapse(s.state, before, s.now) }()
	switch d := weir.Time(s.duration(strings.TrimLeft(word, "+-")).Milliseconds()); word[0] {
	case '+':
		s.now += d
	case '-':
		s.now -= d
	default:
		s.now = d
	}
	return ""
}

func (s *script) publish(words []string, store bool) string {
	p := stream.Publish{Size: -1}
	if store {
		p.Size = 10
	}
	for name, value := range s.options(words) {
		switch name {
		case "seq":
			p.Chosen, p.Seq = true, weir.Seq(s.number(value))
		case "next":
			p.Chosen, p.Contiguous, p.Seq = true, true, weir.Seq(s.number(value))
		case "key":
			p.Key = value
		case "by":
			w := writer(&p)
			if _, err := fmt.Sscanf(strings.ReplaceAll(value, "/", " "), "%s %d %d", &w.Producer, &w.Epoch, &w.Seq); err != nil {
				s.t.Fatalf("publish by=%s: %v", value, err)
			}
		case "order":
			writer(&p).Order = value
		case "ends":
			p.Ends = value == "yes"
		case "size":
			p.Size = int64(s.number(value))
		default:
			s.t.Fatalf("publish has no option %q", name)
		}
	}
	switch v := s.state.Decide(p, s.now); v.Outcome {
	case stream.Refused:
		if k := v.Writer; k.Conflict != stream.NoConflict {
			name := map[stream.Conflict]string{stream.Fenced: "fenced", stream.BadStart: "bad start", stream.Skipped: "skipped", stream.Disorder: "disorder"}
			return fmt.Sprintf("refused, %s at %d/%d\n", name[k.Conflict], k.Epoch, k.Seq)
		}
		return fmt.Sprintf("refused, %v\n", v.Err)
	case stream.Duplicate:
		if p.Writer != nil {
			return fmt.Sprintf("duplicate, the producer is at %d/%d\n", v.Writer.Epoch, v.Writer.Seq)
		}
		if v.Header.Key != (weir.KeyDigest{}) && v.Header.Count != uint32(v.Header.Seq) {
			return fmt.Sprintf("duplicate of %d with %d events\n", v.Header.Seq, v.Header.Count)
		}
		return fmt.Sprintf("duplicate of %d\n", v.Header.Seq)
	default:
		if !store {
			return fmt.Sprintf("may be stored as %d\n", v.Header.Seq)
		}
		v.Header.Count = uint32(v.Header.Seq)
		s.log.append(s.t, v.Header)
		s.state.Apply(v.Header)
		late := ""
		if v.Header.Late {
			late = ", late"
		}
		return fmt.Sprintf("stored %d at %s%s\n", v.Header.Seq, moment(v.Header.Time), late)
	}
}

// writer returns the writer of a publish, and adds one if there is none.
func writer(p *stream.Publish) *stream.Writer {
	if p.Writer == nil {
		p.Writer = &stream.Writer{}
	}
	return p.Writer
}

func (s *script) close() string {
	v := stream.Closing(s.state, nil, s.now)
	if v.Outcome == stream.Duplicate {
		return "is closed already\n"
	}
	marker := v.Header
	s.log.append(s.t, marker)
	s.state.Apply(marker)
	return fmt.Sprintf("closed %d..%d and the stream at %s\n", marker.First, marker.Seq, moment(marker.Time))
}

func (s *script) due() string {
	marker, ok := s.state.Due(s.now, s.held.lowest(s.state))
	if ok {
		s.log.append(s.t, marker)
		s.state.Apply(marker)
		return fmt.Sprintf("closed the gaps in %d..%d at %s\n", marker.First, marker.Seq, moment(marker.Time))
	}
	if n := s.held.lowest(s.state); n == s.state.Final() {
		return fmt.Sprintf("nothing is due while %d is being received\n", n)
	}
	if next, waiting := s.state.NextDue(); waiting {
		return fmt.Sprintf("nothing is due before %s\n", moment(next))
	}
	return "no gap is open\n"
}

func (s *script) show() string {
	c := s.state.Cursor()
	return fmt.Sprintf("cursor %d updated at %s, low %d, final %d, bytes %d\n",
		c.Cursor, moment(c.UpdatedAt), s.state.Low(), s.state.Final(), s.state.Bytes())
}

func (s *script) lookup(words []string) string {
	var answer strings.Builder
	for _, word := range words {
		seq := weir.Seq(s.number(word))
		name := map[stream.Presence]string{stream.Kept: "kept", stream.Evicted: "evicted", stream.Unknown: "unknown", stream.Lost: "lost"}
		fmt.Fprintf(&answer, "%d is %s\n", seq, name[s.state.Lookup(seq)])
	}
	return answer.String()
}

func (s *script) subscribe(name, from string) string {
	switch from {
	case "head":
		s.next[name] = s.state.Resolve(stream.Head)
	case "oldest":
		s.next[name] = s.state.Resolve(stream.Oldest)
	default:
		s.next[name] = s.state.Resolve(stream.After(weir.Seq(s.number(from))))
	}
	return fmt.Sprintf("%s wants %d\n", name, s.next[name])
}

func (s *script) read(name string) string {
	var answer strings.Builder
	for {
		switch step := s.state.Next(s.next[name]); step.Kind {
		case stream.Gap:
			fmt.Fprintf(&answer, "gap %d..%d, ", step.First, step.Last)
			s.next[name] = step.Last + 1
		case stream.Loss:
			fmt.Fprintf(&answer, "lost %d..%d, ", step.First, step.Last)
			s.next[name] = step.Last + 1
		case stream.Read:
			for _, seq := range s.log.batches(step.First, step.Last) {
				fmt.Fprintf(&answer, "batch %d, ", seq)
			}
			s.next[name] = step.Last + 1
		case stream.End:
			fmt.Fprintf(&answer, "end\n")
			return answer.String()
		default:
			fmt.Fprintf(&answer, "waits at %d\n", s.next[name])
			return answer.String()
		}
	}
}

func (s *script) mend(unknown string) string {
	note, lost, err := stream.Mend(s.rules, 0, s.state.Low(), s.log.note, s.log.all(), int(s.number(unknown)), s.now)
	if err != nil {
		s.t.Fatalf("mend: %v", err)
	}
	if s.log.note != nil {
		s.log.note = note
	}
	answer := "declares lost:"
	for _, h := range lost {
		s.log.append(s.t, h)
		if answer += fmt.Sprintf(" %d", h.First); h.First < h.Seq {
			answer += fmt.Sprintf("..%d", h.Seq)
		}
	}
	return answer + "\n"
}

func (s *script) restart() string {
	state, err := stream.Restore(s.rules, 0, s.log.note, s.log.all(), s.now)
	if err != nil {
		s.t.Fatalf("restart: %v", err)
	}
	s.state = state
	return s.show()
}

func (s *script) options(words []string) map[string]string {
	all := map[string]string{}
	for _, word := range words {
		name, value, ok := strings.Cut(word, "=")
		if !ok {
			s.t.Fatalf("%q is not of the form name=value", word)
		}
		all[name] = value
	}
	return all
}

// number parses a number. The word max stands for the highest sequence, and max-N for the sequence
// N below it.
func (s *script) number(word string) uint64 {
	var n uint64
	if rest, ok := strings.CutPrefix(word, "max"); ok {
		if rest != "" {
			n = s.number(strings.TrimPrefix(rest, "-"))
		}
		return uint64(weir.MaxSeq) - n
	}
	if _, err := fmt.Sscanf(word, "%d", &n); err != nil {
		s.t.Fatalf("parse number %q: %v", word, err)
	}
	return n
}

func (s *script) duration(word string) time.Duration {
	d, err := time.ParseDuration(word)
	if err != nil {
		s.t.Fatalf("parse duration %q: %v", word, err)
	}
	return d
}

// moment formats a time as the duration since the creation of the stream.
func moment(t weir.Time) string { return (time.Duration(t) * time.Millisecond).String() }
