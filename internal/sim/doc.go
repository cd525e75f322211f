// Package sim runs the real hub, access, api and engines in simulations. A simulation is a history
// of many clients, disk faults, crashes and restarts that a single number, the seed, determines.
// Time is simulated, so a history of minutes takes milliseconds.
//
// Every disk call of the journal and every step of a client waits at a gate. The scheduler waits
// until all goroutines are blocked, chooses one of the waiting steps by the seed, and lets it go on.
// It may also let time pass, cut the power, fail the call or fill the disk. A model of the contract,
// written from the decisions in docs/decisions.md, checks every response and every delivery.
//
// Some clients are real Go clients (package client), whose requests pass the same gates.
//
// In most simulations of a single server, an event loop without connections begins publishes and
// holds subscriptions, as package server/loop does in a real server.
//
// In one out of four simulations, two or three nodes share a store: the real JetStream engine on
// simulated NATS servers. Then every message between a node and a server waits at a gate. The
// scheduler may lose the message, cut off a node or a server, replace a leader, or set the clock of
// a node. The simulated servers are held to the same cases as a real one.
//
// The seed also decides the size of a history: from 150 to 3,000 steps, 4 to 20 clients and 1 to 4
// streams that the clients share. Most histories have less than 300 steps.
//
// The package consists of tests only. The command "make sim" runs as many seeds as you ask for.
package sim
