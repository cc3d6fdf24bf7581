"""The public names for jobs that stop and checkpoint before scheduled events.

Example:
    from forewarn.job import Job

    with Job("train", rank=rank, world=world) as job:
        for step in range(first, last):
            if job.poll(step):
                save(step)
                if rank == 0:
                    job.acknowledge(checkpoint=f"step-{step}")
            train(step)
"""

from forewarn.agent.jobs.client import Job, JobNotice, JobRefused, NotAcknowledged

__all__ = ["Job", "JobNotice", "JobRefused", "NotAcknowledged"]
