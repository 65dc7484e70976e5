"""The placement kernel, shared by scheduler, translator, summarizer, syncer and commands.  Pure, except `feeds`.

names           kinds, objects, mailboxes, collections, reasons
types           one typed reader per kind
select          which objects an EdgePlacement selects; `spec.where`
resolve         the destinations of an EdgePlacement
project         one copy in a mailbox: stripped, merged, customized, marked
customize       parameters and Customizers
syncer_config   what a syncer is told, and what it reports
index           which object belongs in which mailbox
guard           how much may be withdrawn at once
state           all of it, and the keys that each event affects
feeds           informers of all objects in all workspaces
"""
